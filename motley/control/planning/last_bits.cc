#include "motley/control/planning/last_bits.h"

#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "motley/base/dtype.h"
#include "motley/base/random.h"

namespace motley::control {
namespace {

/// Moves numbers by one in their magnitude bits, which gives the next larger or smaller one.
template <typename Bits>
void change_bits(std::vector<std::byte>& numbers, SplitMix64& random) {
  constexpr Bits kMagnitude = static_cast<Bits>(static_cast<Bits>(~Bits{0}) >> 1);
  for (std::size_t at = 0; at + sizeof(Bits) <= numbers.size(); at += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, numbers.data() + at, sizeof(Bits));
    if ((bits & kMagnitude) == 0) continue;
    bits = static_cast<Bits>(random.uniform() < 0.5 ? bits + 1 : bits - 1);
    std::memcpy(numbers.data() + at, &bits, sizeof(Bits));
  }
}

void change_numbers(DType dtype, std::vector<std::byte>& numbers, SplitMix64& random) {
  if (!is_floating(dtype)) return;
  if (dtype_size(dtype) == 2) change_bits<std::uint16_t>(numbers, random);
  if (dtype_size(dtype) == 4) change_bits<std::uint32_t>(numbers, random);
  if (dtype_size(dtype) == 8) change_bits<std::uint64_t>(numbers, random);
}

}  // namespace

Result<Inputs> change_last_bits(const Inputs& inputs, const std::string& path, std::uint64_t seed) {
  const Safetensors& file = *inputs.model->weights;
  std::map<std::string, std::vector<std::byte>> changed;
  SplitMix64 random(seed);
  for (const graph::Value& value : inputs.graph().values) {
    const auto found = file.tensors().find(value.name);
    if (value.role != graph::ValueRole::kParameter || found == file.tensors().end()) continue;
    const TensorView& tensor = found->second;
    std::vector<std::byte> numbers(tensor.bytes.begin(), tensor.bytes.end());
    change_numbers(tensor.dtype, numbers, random);
    for (const std::string& tied : value.tied) changed[tied] = numbers;
    changed[value.name] = std::move(numbers);
  }
  std::vector<NamedTensor> tensors;
  for (const auto& [name, tensor] : file.tensors()) {
    tensors.push_back({name, tensor});
    if (const auto found = changed.find(name); found != changed.end())
      tensors.back().tensor.bytes = found->second;
  }
  MOTLEY_RETURN_IF_ERROR(write_safetensors(path, tensors, file.metadata()));
  graph::Model model = *inputs.model;
  MOTLEY_ASSIGN(Safetensors weights, Safetensors::open(path));
  model.weights = std::make_shared<const Safetensors>(std::move(weights));
  Inputs made = inputs;
  made.model_path = path;
  made.model = std::make_shared<const graph::Model>(std::move(model));
  return made;
}

}  // namespace motley::control
