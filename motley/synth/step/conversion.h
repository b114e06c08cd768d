#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "motley/graph/rules/strategy.h"

namespace motley::synth {

/// A local copy of a value in a form; no copy if `op` is empty.
struct LocalCopy {
  std::string_view op;  ///< "motley::cut"
  graph::Form of;       ///< the form whose bytes count
  int times = 2;        ///< 2 if the bytes are read and written, 1 if only written
  bool operator==(const LocalCopy&) const = default;
};

/// One step of a change of form: a copy, an exchange, a copy.
struct Conversion {
  LocalCopy before;
  std::string_view exchange;  ///< "motley::all_gather"; empty: none
  graph::Form travels;        ///< form whose parts travel (all-gather, reduce-scatter)
  LocalCopy after;
  bool operator==(const Conversion&) const = default;
};

/// Returns how a value of this (whole) shape changes its form: no step if the forms are equal, two
/// steps if it becomes whole in between. Lowering, prices and explanations all use these steps:
///
///   whole -> sharded     take the own part
///   sharded -> whole     cut, all-gather, join
///   partial -> whole     all-reduce of a copy (or in place: Schedule::in_place)
///   partial -> sharded   cut, reduce-scatter, join
///   sharded -> sharded   cut, all-to-all, join where the dimensions differ, else over whole
///   any -> partial       whole on one device, zeros on the others
///
/// Parts that are already in tensor order need no join.
std::vector<Conversion> find_conversions(const std::vector<std::int64_t>& shape,
                                         const graph::Form& from, const graph::Form& to);

/// Returns the exchange that changes the form in one step, or empty.
std::string_view find_exchange(const graph::Form& from, const graph::Form& to);

/// Must a value in parts become whole before it becomes `to`?
bool goes_over_whole(const graph::Form& from, const graph::Form& to);

}  // namespace motley::synth
