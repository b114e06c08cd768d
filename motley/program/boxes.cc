#include "motley/program/boxes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

namespace motley::program {
namespace {

const ArgumentList* find_list(const Instruction& instruction, std::size_t argument) {
  return std::get_if<ArgumentList>(&instruction.arguments[argument].value);
}

std::optional<Box> read_box(const Argument& argument) {
  const auto* list = std::get_if<ArgumentList>(&argument.value);
  if (list == nullptr || list->size() % 2 == 0) return std::nullopt;
  std::vector<std::int64_t> numbers;
  for (const Argument& each : *list) {
    const auto* number = std::get_if<std::int64_t>(&each.value);
    if (number == nullptr) return std::nullopt;
    numbers.push_back(*number);
  }
  Box box{numbers[0], {}};
  for (std::size_t i = 1; i < numbers.size(); i += 2)
    box.sides.push_back({numbers[i], numbers[i + 1]});
  return box;
}

std::optional<std::vector<std::pair<BufferId, Box>>> read_boxes(const Instruction& instruction,
                                                                std::size_t first) {
  const ArgumentList* buffers = find_list(instruction, first);
  const ArgumentList* boxes = find_list(instruction, first + 1);
  if (buffers == nullptr || boxes == nullptr || buffers->size() != boxes->size())
    return std::nullopt;
  std::vector<std::pair<BufferId, Box>> read;
  for (std::size_t i = 0; i < buffers->size(); ++i) {
    const auto* id = std::get_if<BufferId>(&(*buffers)[i].value);
    auto box = read_box((*boxes)[i]);
    if (id == nullptr || !box) return std::nullopt;
    read.emplace_back(*id, std::move(*box));
  }
  return read;
}

// Returns the position of the last element; none for an invalid box: one without elements, with an
// element twice, or beyond 2^63. Boxes also come from program files: sums and products are checked,
// so that a wrapped one cannot pass for a position in the tensor.
std::optional<std::int64_t> last_of(const Box& box) {
  std::int64_t span = 0;  // from the first to the last element of the inner sides
  for (auto side = box.sides.rbegin(); side != box.sides.rend(); ++side) {
    std::int64_t length = 0;
    if (side->extent < 1 || side->stride < 1) return std::nullopt;
    if (side->extent > 1 && side->stride <= span) return std::nullopt;
    if (__builtin_mul_overflow(side->extent - 1, side->stride, &length) ||
        __builtin_add_overflow(span, length, &span))
      return std::nullopt;
  }
  std::int64_t last = 0;
  if (box.begin < 0 || __builtin_add_overflow(box.begin, span, &last)) return std::nullopt;
  return last;
}

std::string check_boxes(const DeviceProgram& device,
                        const std::vector<std::pair<BufferId, Box>>& boxes, DType dtype) {
  for (const auto& [id, box] : boxes) {
    const Buffer& buffer = device.buffer(id);
    if (buffer.dtype != dtype)
      return fmt::format("found dtype {} of %{}, wanted {}", dtype_name(buffer.dtype), id.value,
                         dtype_name(dtype));
    const auto last = last_of(box);
    if (!last)
      return fmt::format("found a box of %{} that has no elements, or some twice", id.value);
    if (*last >= buffer.elements())
      return fmt::format("found a box up to element {} of %{}, which has {}", *last, id.value,
                         buffer.elements());
  }
  return "";
}

std::string find_take_fault(const DeviceProgram& device, const BoxCopies& copies) {
  const Buffer& result = device.buffer(copies.result);
  std::string fault = check_boxes(device, copies.from, result.dtype);
  if (!fault.empty()) return fault;
  if (result.shape.size() != 1 || result.elements() != copies.elements)
    return fmt::format("found {} elements in {} dimensions of %{}, wanted {} in one",
                       result.elements(), result.shape.size(), copies.result.value,
                       copies.elements);
  if (!result.view_of.is_none())
    return fmt::format("defines %{}, which is a view", copies.result.value);
  return "";
}

std::string find_put_fault(const DeviceProgram& device, const BoxCopies& copies) {
  if (copies.into.empty()) return "";
  const DType dtype = device.buffer(copies.into[0].first).dtype;
  for (const auto* boxes : {&copies.into, &copies.from})
    if (std::string fault = check_boxes(device, *boxes, dtype); !fault.empty()) return fault;
  for (std::size_t i = 0; i < copies.into.size(); ++i) {
    const auto& [target, into] = copies.into[i];
    const auto& [value, from] = copies.from[i];
    if (!device.buffer(target).view_of.is_none())
      return fmt::format("writes %{}, which is a view", target.value);
    const bool fits = std::equal(
        into.sides.begin(), into.sides.end(), from.sides.begin(), from.sides.end(),
        [](const Box::Side& one, const Box::Side& other) { return one.extent == other.extent; });
    if (!fits)
      return fmt::format("found boxes of unequal extents in %{} and %{}", target.value,
                         value.value);
  }
  return "";
}

}  // namespace

std::int64_t Box::elements() const {
  std::int64_t count = 1;
  for (const Side& side : sides)
    if (__builtin_mul_overflow(count, side.extent, &count)) return -1;
  return count;
}

Argument box_argument(const Box& box) {
  ArgumentList list{{box.begin}};
  for (const Box::Side& side : box.sides) {
    list.push_back({side.extent});
    list.push_back({side.stride});
  }
  return {std::move(list)};
}

std::optional<BoxCopies> find_box_copies(const Instruction& instruction) {
  const bool takes = instruction.op == kTake;
  if (!takes && instruction.op != kPut) return std::nullopt;
  if (instruction.arguments.size() != (takes ? 2U : 4U) ||
      instruction.outputs.size() != (takes ? 1U : 0U))
    return std::nullopt;
  auto from = read_boxes(instruction, takes ? 0 : 2);
  if (!from) return std::nullopt;
  BoxCopies copies;
  copies.from = std::move(*from);
  if (takes) {
    copies.result = instruction.outputs[0];
  } else {
    auto into = read_boxes(instruction, 0);
    if (!into || into->size() != copies.from.size()) return std::nullopt;
    copies.into = std::move(*into);
  }
  for (const auto& [id, box] : copies.from) {
    const std::int64_t elements = box.elements();
    if (elements < 0 || __builtin_add_overflow(copies.elements, elements, &copies.elements))
      return std::nullopt;
  }
  return copies;
}

std::string find_box_fault(const DeviceProgram& device, const Instruction& instruction) {
  if (instruction.op != kTake && instruction.op != kPut) return "";
  const auto copies = find_box_copies(instruction);
  if (!copies)
    return instruction.op == kTake ? "wanted buffers, a box of each and a result"
                                   : "wanted buffers, a box of each, as many buffers again and a "
                                     "box of each";
  return instruction.op == kTake ? find_take_fault(device, *copies)
                                 : find_put_fault(device, *copies);
}

}  // namespace motley::program
