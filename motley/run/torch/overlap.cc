#include "motley/run/torch/overlap.h"

#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <optional>
#include <thread>
#include <utility>

#include "motley/base/statistics.h"
#include "motley/run/torch/exchange/clock.h"
#include "motley/run/torch/exchange/emulated_link.h"
#include "motley/run/torch/exchange/failure.h"
#include "motley/run/torch/lanes/streams.h"

namespace motley::run {
namespace {

constexpr int kSamples = 12;
constexpr std::int64_t kComputeNs = 40'000'000;
constexpr std::int64_t kMostBucketBytes = 4 << 20;   // a bucket of gradients
constexpr std::int64_t kMostEmulatedNs = 5'000'000;  // of one exchange

struct Span {
  std::int64_t begin = 0, end = 0;
  std::int64_t length() const { return end - begin; }
};

at::TensorOptions floats_on(const WorkerDevice& device) {
  return at::TensorOptions().dtype(at::kFloat).device(device.kind == "cuda" ? at::kCUDA : at::kCPU);
}

/// Does a layer's forward and backward work on tensors of 128 KiB and 1 MiB.
class ComputeLoop {
 public:
  explicit ComputeLoop(const at::TensorOptions& options)
      : input_(at::full({64, 512}, 0.01, options)), weight_(at::full({512, 512}, 0.01, options)) {
    if (input_.is_cuda()) streams_.emplace(input_.device(), 0);
    run();
    std::int64_t spent = 0, count = 0;
    for (; spent < kComputeNs / 2; ++count) spent += run().length();
    repeats_ = 2 * count;
  }

  Span run() const {
    Span span{monotonic_ns(), 0};
    for (std::int64_t i = 0; i < repeats_; ++i) {
      const at::Tensor product = at::mm(input_, weight_);
      at::relu(product).add_(input_).mul_(0.5);
      at::mm(input_.t(), product).mul_(0.1);
    }
    if (streams_) streams_->synchronize();
    span.end = monotonic_ns();
    return span;
  }

 private:
  at::Tensor input_, weight_;
  std::optional<Streams> streams_;
  std::int64_t repeats_ = 1;
};

/// Repeats exchanges until every rank has computed, which the sum of first elements tells all.
Result<std::vector<Span>> keep_exchanging(WorkerSession& session, GroupId group, at::Tensor tensor,
                                          const std::atomic<bool>& has_computed) {
  const c10::InferenceMode no_autograd;
  std::optional<Streams> streams;
  if (tensor.is_cuda()) {
    streams.emplace(tensor.device(), 0);
    streams->use_own_stream();
  }
  std::vector<Span> spans;
  try {
    for (float computed = 0; computed < static_cast<float>(session.size);) {
      tensor[0].fill_(has_computed ? 1 : 0);
      Span span{monotonic_ns(), 0};
      MOTLEY_RETURN_IF_ERROR(session.communicator->all_reduce(group, tensor));
      computed = tensor[0].item<float>();  // also waits for the device
      span.end = monotonic_ns();
      spans.push_back(span);
    }
  } catch (const std::exception& fault) {
    return runtime_error("run.operator", failure_text(fault));
  }
  return spans;
}

/// Returns how many of the consecutive spans lie in `compute`, counting fractions.
double count_within(const Span& compute, const std::vector<Span>& spans) {
  double count = 0;
  for (const Span& span : spans) {
    const std::int64_t common =
        std::min(span.end, compute.end) - std::max(span.begin, compute.begin);
    if (common > 0) count += static_cast<double>(common) / static_cast<double>(span.length());
  }
  return count;
}

struct Beside {
  Span compute;
  std::vector<Span> exchanges;
};

Result<Beside> compute_beside_exchanges(WorkerSession& session, GroupId group,
                                        const ComputeLoop& loop, const at::Tensor& tensor) {
  std::atomic<bool> has_computed = false;
  Result<std::vector<Span>> spans;
  std::thread exchanging([&] { spans = keep_exchanging(session, group, tensor, has_computed); });
  Beside beside;
  std::exception_ptr fault;
  try {
    beside.compute = loop.run();
  } catch (...) {
    fault = std::current_exception();
  }
  has_computed = true;
  exchanging.join();
  if (fault) std::rethrow_exception(fault);
  MOTLEY_ASSIGN(beside.exchanges, std::move(spans));
  return beside;
}

Result<double> time_exchange(WorkerSession& session, GroupId group, const at::Tensor& tensor) {
  std::atomic<bool> has_computed = true;
  std::vector<double> seconds;
  for (int i = 0; i < kSamples; ++i) {
    MOTLEY_ASSIGN(const auto spans, keep_exchanging(session, group, tensor, has_computed));
    seconds.push_back(1e-9 * static_cast<double>(spans.back().length()));
  }
  return median(std::move(seconds));
}

/// Returns the largest exchange up to a bucket that is not long on the emulated link.
std::int64_t exchanged_bytes(const WorkerSession& session, GroupId group) {
  std::vector<int> members;
  for (const Rank rank : session.program.groups[group.index()].members)
    members.push_back(rank.value);
  const EmulatedLink link = group_link(session.job.devices, members);
  std::int64_t bytes = kMostBucketBytes;
  while (bytes > 4 && link.all_reduce_ns(session.size, bytes) > kMostEmulatedNs) bytes /= 4;
  return bytes;
}

}  // namespace

Result<std::vector<OverlapTime>> measure_overlap(WorkerSession& session, GroupId group) {
  const c10::InferenceMode no_autograd;
  const at::TensorOptions options = floats_on(session.device());
  const at::Tensor exchanged = at::zeros({exchanged_bytes(session, group) / 4}, options);
  const ComputeLoop loop(options);
  MOTLEY_ASSIGN(const double exchange, time_exchange(session, group, exchanged));
  // Each rank fills its rows; the sum gives all rows to all.
  at::Tensor times = at::zeros({session.size, kSamples, 3}, at::kDouble);
  at::Tensor meeting = at::zeros({1}, options);
  for (int sample = 0; sample < kSamples; ++sample) {
    MOTLEY_RETURN_IF_ERROR(session.communicator->all_reduce(group, meeting));
    const Span alone = loop.run();
    MOTLEY_RETURN_IF_ERROR(session.communicator->all_reduce(group, meeting));
    MOTLEY_ASSIGN(const Beside beside, compute_beside_exchanges(session, group, loop, exchanged));
    at::Tensor row = times[session.rank][sample];
    row[0].fill_(1e-9 * static_cast<double>(alone.length()));
    row[1].fill_(1e-9 * static_cast<double>(beside.compute.length()));
    row[2].fill_(exchange * count_within(beside.compute, beside.exchanges));
  }
  at::Tensor all = times.to(options.device());
  MOTLEY_RETURN_IF_ERROR(session.communicator->all_reduce(group, all));
  all = all.cpu();
  std::vector<OverlapTime> overlaps;
  for (int rank = 0; rank < session.size; ++rank)
    for (int sample = 0; sample < kSamples; ++sample) {
      const double* row = all.const_data_ptr<double>() + (rank * kSamples + sample) * 3;
      overlaps.push_back({rank, Seconds(row[0]), Seconds(row[1]), Seconds(row[2])});
    }
  return overlaps;
}

}  // namespace motley::run
