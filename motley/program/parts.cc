#include "motley/program/parts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace motley::program {
namespace {

constexpr std::string_view kCut = "motley::cut";
constexpr std::string_view kJoin = "motley::join";
constexpr std::string_view kPart = "motley::part";

constexpr ExchangeMethod kOfAllReduce[] = {ExchangeMethod::kNative, ExchangeMethod::kHierarchical};

bool has_parts(std::string_view op) {
  return op == kAllGather || op == kReduceScatter || op == kAllToAll;
}

std::optional<std::vector<std::int64_t>> find_integers(const Argument& argument) {
  const auto* list = std::get_if<ArgumentList>(&argument.value);
  if (list == nullptr) return std::nullopt;
  std::vector<std::int64_t> integers;
  for (const Argument& item : *list) {
    const auto* integer = std::get_if<std::int64_t>(&item.value);
    if (integer == nullptr) return std::nullopt;
    integers.push_back(*integer);
  }
  return integers;
}

// Returns the sum; none if a count is negative or the sum overflows: counts come from program
// files, and a wrapped sum or product could pass for the size of a buffer.
std::optional<std::int64_t> find_total(const std::vector<std::int64_t>& counts) {
  std::int64_t total = 0;
  for (const std::int64_t count : counts)
    if (count < 0 || __builtin_add_overflow(total, count, &total)) return std::nullopt;
  return total;
}

std::optional<std::int64_t> find_product(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

bool is_summable(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 ||
         dtype == DType::kF64 || dtype == DType::kI32 || dtype == DType::kI64 || is_complex(dtype);
}

/// Checks a buffer's size: "found 4 elements in %2, wanted 6".
std::string check_elements(const DeviceProgram& device, BufferId id,
                           std::optional<std::int64_t> wanted) {
  const std::int64_t found = device.buffer(id).elements();
  if (wanted && found == *wanted) return "";
  return fmt::format("found {} elements in %{}, wanted {}", found, id.value,
                     wanted ? std::to_string(*wanted) : "fewer than 2^63");
}

std::string check_counts(const std::vector<std::int64_t>& counts, std::size_t members) {
  if (counts.size() != members)
    return fmt::format("found counts of {} members, wanted {}", counts.size(), members);
  for (const std::int64_t count : counts)
    if (count < 0) return fmt::format("found a count of {}", count);
  return "";
}

std::string check_flat(const DeviceProgram& device, BufferId id) {
  const std::size_t dimensions = device.buffer(id).shape.size();
  return dimensions == 1
             ? ""
             : fmt::format("found {} dimensions in %{}, wanted 1", dimensions, id.value);
}

std::string check_result(const DeviceProgram& device, BufferId value, BufferId result) {
  const DType found = device.buffer(result).dtype, wanted = device.buffer(value).dtype;
  if (found != wanted)
    return fmt::format("found dtype {} of %{}, wanted {}", dtype_name(found), result.value,
                       dtype_name(wanted));
  if (!device.buffer(result).view_of.is_none())
    return fmt::format("defines %{}, which is a view", result.value);
  return "";
}

std::string first_of(std::initializer_list<std::string> faults) {
  for (const std::string& fault : faults)
    if (!fault.empty()) return fault;
  return "";
}

std::string find_exchange_fault(const Program& program, std::size_t rank,
                                const Instruction& instruction) {
  const auto parts = find_exchange_parts(instruction);
  if (!parts)
    return instruction.op != kAllToAll    ? "wanted a buffer, a list of counts and a result"
           : instruction.overload.empty() ? "wanted a buffer, two lists of counts and a result"
                                          : "wanted a buffer, two lists of counts, of a padded one "
                                            "the largest of all, and a result";
  const DeviceProgram& device = program.devices[rank];
  const std::vector<Rank>& members = program.groups[instruction.group.index()].members;
  const bool is_all_to_all = instruction.op == kAllToAll;
  std::string fault =
      first_of({check_counts(parts->counts, members.size()),
                is_all_to_all ? check_counts(parts->receives, members.size()) : std::string(),
                check_flat(device, parts->value), check_flat(device, parts->result),
                check_result(device, parts->value, parts->result)});
  if (!fault.empty()) return fault;
  for (const auto* counts : {&parts->counts, &parts->receives})
    for (const std::int64_t count : *counts)
      if (parts->cell > 0 && count > parts->cell)
        return fmt::format("found a count of {}, wanted {} at most", count, parts->cell);
  const DType dtype = device.buffer(parts->value).dtype;
  if (instruction.op == kReduceScatter && !is_summable(dtype))
    return fmt::format("cannot sum {}", dtype_name(dtype));
  if (is_all_to_all)
    return first_of({check_elements(device, parts->value, find_total(parts->counts)),
                     check_elements(device, parts->result, find_total(parts->receives))});
  const auto place = std::find(members.begin(), members.end(), Rank(static_cast<int>(rank)));
  const std::int64_t own = parts->counts[static_cast<std::size_t>(place - members.begin())];
  const bool gathers = instruction.op == kAllGather;
  return first_of(
      {check_elements(device, gathers ? parts->value : parts->result, own),
       check_elements(device, gathers ? parts->result : parts->value, find_total(parts->counts))});
}

/// Checks the size of a part against its tensor.
std::string check_extent(const DeviceProgram& device, const TensorParts& parts) {
  const std::int64_t found = device.buffer(parts.result).elements();
  const std::int64_t all = device.buffer(parts.value).elements();
  const auto row = find_product(parts.before, parts.after);
  // Avoids a division by zero: a tensor without elements has only empty parts.
  if (row && *row == 0) return check_elements(device, parts.result, 0);
  if (!row || all % *row != 0)
    return fmt::format("found {} elements in %{}, wanted a multiple of {} * {}", all,
                       parts.value.value, parts.before, parts.after);
  if (found % *row != 0)
    return fmt::format("found {} elements in %{}, wanted a multiple of {} * {}", found,
                       parts.result.value, parts.before, parts.after);
  if (parts.begin < 0 || parts.begin > all / *row || found / *row > all / *row - parts.begin)
    return fmt::format("found {} from {} on, wanted a part of {}", found / *row, parts.begin,
                       all / *row);
  return "";
}

std::string find_tensor_fault(const DeviceProgram& device, const Instruction& instruction) {
  const auto parts = find_tensor_parts(instruction);
  if (!parts)
    return instruction.op == kPart
               ? "wanted a buffer, before, begin, after and a result"
               : "wanted a buffer, before, a list of extents, after and a result";
  if (parts->before < 0 || parts->after < 0)
    return fmt::format("found {} before and {} after, wanted none negative", parts->before,
                       parts->after);
  std::string fault = check_result(device, parts->value, parts->result);
  if (!fault.empty()) return fault;
  if (instruction.op == kPart) return check_extent(device, *parts);
  for (const std::int64_t extent : parts->extents)
    if (extent < 0) return fmt::format("found an extent of {}", extent);
  std::optional<std::int64_t> total = find_total(parts->extents);
  if (total) total = find_product(parts->before, *total);
  if (total) total = find_product(*total, parts->after);
  return first_of({check_flat(device, instruction.op == kCut ? parts->result : parts->value),
                   check_elements(device, parts->value, total),
                   check_elements(device, parts->result, total)});
}

}  // namespace

bool is_collective(std::string_view op) { return op == kAllReduce || has_parts(op); }

std::span<const ExchangeMethod> methods_of(std::string_view op) {
  return has_parts(op) ? std::span<const ExchangeMethod>(kExchangeMethods)
                       : std::span(kOfAllReduce);
}

std::optional<ExchangeMethod> find_method(const Instruction& instruction) {
  if (instruction.overload.empty()) return ExchangeMethod::kNative;
  const auto method = find_exchange_method(instruction.overload);
  // A native exchange that names its method is refused: each exchange has one spelling.
  const auto known = methods_of(instruction.op).subspan(1);  // native has no overload
  const bool is_known = method && std::find(known.begin(), known.end(), *method) != known.end();
  return is_known ? method : std::nullopt;
}

std::string collective_name(std::string_view op, ExchangeMethod method) {
  if (method == ExchangeMethod::kNative) return std::string(op);
  return fmt::format("{}.{}", op, exchange_method_name(method));
}

std::optional<ExchangeParts> find_exchange_parts(const Instruction& instruction) {
  const ArgumentList& arguments = instruction.arguments;
  const bool is_all_to_all = instruction.op == kAllToAll;
  // The instruction states the cell: the largest count of *all* members, which none of them knows.
  const bool has_cell = is_all_to_all && instruction.overload == "padded";
  const std::size_t wanted = is_all_to_all ? (has_cell ? 4 : 3) : 2;
  if (!has_parts(instruction.op) || arguments.size() != wanted || instruction.outputs.size() != 1)
    return std::nullopt;
  const auto* value = std::get_if<BufferId>(&arguments[0].value);
  auto counts = find_integers(arguments[1]);
  if (value == nullptr || !counts) return std::nullopt;
  ExchangeParts parts{*value, instruction.outputs[0], std::move(*counts), {}, 0};
  if (is_all_to_all) {
    auto receives = find_integers(arguments[2]);
    if (!receives) return std::nullopt;
    parts.receives = std::move(*receives);
  }
  if (has_cell) {
    const auto* cell = std::get_if<std::int64_t>(&arguments[3].value);
    if (cell == nullptr || *cell < 1) return std::nullopt;
    parts.cell = *cell;
  }
  return parts;
}

NamedCollective split_collective_name(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return {name};
  const auto method = find_exchange_method(name.substr(dot + 1));
  return method ? NamedCollective{name.substr(0, dot), *method} : NamedCollective{name};
}

std::optional<TensorParts> find_tensor_parts(const Instruction& instruction) {
  const ArgumentList& arguments = instruction.arguments;
  const bool is_part = instruction.op == kPart;
  if (!is_part && instruction.op != kCut && instruction.op != kJoin) return std::nullopt;
  if (arguments.size() != 4 || instruction.outputs.size() != 1) return std::nullopt;
  const auto* value = std::get_if<BufferId>(&arguments[0].value);
  const auto* before = std::get_if<std::int64_t>(&arguments[1].value);
  const auto* begin = std::get_if<std::int64_t>(&arguments[2].value);
  const auto* after = std::get_if<std::int64_t>(&arguments[3].value);
  if (value == nullptr || before == nullptr || after == nullptr) return std::nullopt;
  TensorParts parts{*value, instruction.outputs[0], *before, *after, {}, 0};
  if (is_part) {
    if (begin == nullptr) return std::nullopt;
    parts.begin = *begin;
    return parts;
  }
  auto extents = find_integers(arguments[2]);
  if (!extents) return std::nullopt;
  parts.extents = std::move(*extents);
  return parts;
}

std::string find_parts_fault(const Program& program, std::size_t rank,
                             const Instruction& instruction) {
  if (is_collective(instruction.op) && !find_method(instruction))
    return fmt::format("'{}' is no way to carry out {}", instruction.overload, instruction.op);
  if (has_parts(instruction.op)) return find_exchange_fault(program, rank, instruction);
  const std::string& op = instruction.op;
  if (op == kCut || op == kJoin || op == kPart)
    return find_tensor_fault(program.devices[rank], instruction);
  return "";
}

Bytes even_bytes(ExchangeMethod method, const std::vector<std::int64_t>& counts,
                 std::int64_t element_size) {
  const auto members = static_cast<std::int64_t>(counts.size());
  const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
  if (method != ExchangeMethod::kGrouped || members < 2)
    return Bytes(members * *most * element_size);
  const std::int64_t all = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  const double passed = static_cast<double>((all - *least) * element_size);
  return Bytes(
      std::llround(passed * static_cast<double>(members) / static_cast<double>(members - 1)));
}

Bytes priced_bytes(const DeviceProgram& program, const Instruction& instruction) {
  const auto parts = find_exchange_parts(instruction);
  if (!parts) return exchanged_bytes(program, instruction);
  const Buffer &value = program.buffer(parts->value), &result = program.buffer(parts->result);
  if (parts->cell > 0)
    return Bytes(static_cast<std::int64_t>(parts->counts.size()) * parts->cell *
                 dtype_size(value.dtype));
  if (instruction.op == kAllToAll) return std::max(value.bytes(), result.bytes());
  return even_bytes(find_method(instruction).value_or(ExchangeMethod::kNative), parts->counts,
                    dtype_size(value.dtype));
}

std::vector<Bytes> uneven_parts(const DeviceProgram& program, const Instruction& instruction) {
  const auto parts = find_exchange_parts(instruction);
  if (!parts || instruction.op == kAllToAll || parts->counts.empty()) return {};
  const auto method = find_method(instruction);
  if (method != ExchangeMethod::kNative && method != ExchangeMethod::kHierarchical) return {};
  std::vector<Bytes> bytes;
  for (const std::int64_t count : parts->counts)
    bytes.emplace_back(count * dtype_size(program.buffer(parts->value).dtype));
  if (std::equal(bytes.begin() + 1, bytes.end(), bytes.begin())) return {};
  return bytes;
}

}  // namespace motley::program
