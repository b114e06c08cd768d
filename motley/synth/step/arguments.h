#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "motley/program/program.h"

namespace motley::synth {

using Shape = std::vector<std::int64_t>;
using Arguments = program::ArgumentList;

// ---- common arguments of instructions

inline program::Argument none() { return {NoneArgument{}}; }
inline program::Argument buffer_or_none(BufferId id) {
  return id.is_none() ? none() : program::Argument{id};
}
inline program::Argument number(std::variant<std::int64_t, double> value) {
  return {program::NumberArgument{value}};
}
inline program::Argument keyword(std::string kind, std::string_view word) {
  return {KeywordArgument{std::move(kind), std::string(word)}};
}

/// Returns each value times `times`.
inline Arguments integers(const Shape& values, std::int64_t times = 1) {
  Arguments list;
  for (const std::int64_t value : values) list.push_back({value * times});
  return list;
}

inline Arguments buffer_list(const std::vector<BufferId>& ids) {
  Arguments list;
  for (const BufferId id : ids) list.push_back({id});
  return list;
}

/// Returns the tensor at a place of the arguments, or none.
inline BufferId buffer_at(const Arguments& arguments, int place) {
  if (place < 0) return BufferId();
  const auto* id = std::get_if<BufferId>(&arguments[static_cast<std::size_t>(place)].value);
  return id == nullptr ? BufferId() : *id;
}

/// Returns the arguments of aten::zeros: size, dtype, layout, device, pin_memory.
inline Arguments zeros_arguments(const Shape& shape, DType dtype) {
  return {{integers(shape)},
          keyword("dtype", dtype_name(dtype)),
          none(),
          keyword("device", "local"),
          none()};
}

}  // namespace motley::synth
