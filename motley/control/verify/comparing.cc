#include "motley/control/verify/comparing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "motley/base/safetensors.h"

namespace motley::control {
namespace {

/// Returns ||a-b|| / ||b|| of two tensors, or ||a-b|| where b is zero.
template <typename T>
double relative_difference(std::span<const std::byte> a, std::span<const std::byte> b) {
  const auto* x = reinterpret_cast<const T*>(a.data());
  const auto* y = reinterpret_cast<const T*>(b.data());
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size() / sizeof(T); ++i) {
    const double d = static_cast<double>(x[i]) - static_cast<double>(y[i]);
    difference += d * d;
    norm += static_cast<double>(y[i]) * static_cast<double>(y[i]);
  }
  if (difference == 0) return 0;
  return norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
}

std::vector<float> widen_bf16(std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / 2);
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t half;
    std::memcpy(&half, bytes.data() + 2 * i, 2);
    const std::uint32_t bits = static_cast<std::uint32_t>(half) << 16;
    std::memcpy(&values[i], &bits, 4);
  }
  return values;
}

double tensor_difference(const TensorView& a, const TensorView& b) {
  switch (a.dtype) {
    case DType::kF32:
      return relative_difference<float>(a.bytes, b.bytes);
    case DType::kF64:
      return relative_difference<double>(a.bytes, b.bytes);
    case DType::kBF16: {
      const auto x = widen_bf16(a.bytes), y = widen_bf16(b.bytes);
      return relative_difference<float>(std::as_bytes(std::span(x)), std::as_bytes(std::span(y)));
    }
    default:
      return std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin()) ? 0 : 1;
  }
}

Result<void> compare_models(const std::string& ours, const std::string& reference,
                            Difference& difference) {
  MOTLEY_ASSIGN(const Safetensors a, Safetensors::open(ours));
  MOTLEY_ASSIGN(const Safetensors b, Safetensors::open(reference));
  for (const auto& [name, tensor] : b.tensors()) {
    const auto it = a.tensors().find(name);
    if (it == a.tensors().end() || it->second.shape != tensor.shape ||
        it->second.dtype != tensor.dtype)
      return runtime_error("verify.tensors", fmt::format("{}: tensor '{}' differs in shape or is "
                                                         "missing from {}",
                                                         reference, name, ours));
    difference.tensors[name] = tensor_difference(it->second, tensor);
  }
  return {};
}

}  // namespace

Result<Difference> compare_trained(const Trained& ours, const Trained& reference) {
  Difference difference;
  const std::vector<double>&a = ours.losses, &b = reference.losses;
  difference.has_all_steps = a.size() == b.size();
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    difference.loss =
        std::max(difference.loss, std::abs(a[i] - b[i]) / std::max(1e-12, std::abs(b[i])));
  MOTLEY_RETURN_IF_ERROR(compare_models(ours.model, reference.model, difference));
  return difference;
}

Result<Reference> make_reference(const Inputs& inputs, const plan::Plan& plan) {
  Reference reference{.inputs = inputs};
  cluster::Cluster& cluster = reference.inputs.cluster;
  cluster = {};
  cluster.name = "reference";
  cluster.nodes.push_back({.name = "reference"});
  cluster.devices.push_back({.node = NodeId(0), .name = "reference:0", .kind = "cpu"});
  reference.inputs.devices = {DeviceId(0)};
  plan::Plan whole = plan;
  whole.cluster_hash = cluster::cluster_hash(cluster);
  whole.replicas = plan::make_replicas({DeviceId(0)}, {plan.global_batch});
  whole.owners.clear();
  whole.carried = {};
  if (plan.batch_norm_span == plan::BatchNormSpan::kMicroBatch)
    whole.replicas[0].micro_batches = plan.replicas[0].micro_batches;
  MOTLEY_ASSIGN(reference.planned, lower_plan(reference.inputs, std::move(whole)));
  return reference;
}

}  // namespace motley::control
