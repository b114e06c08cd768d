#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "motley/graph/rules/strategy.h"

namespace motley::synth {

/// A copy on each device of what it has of a value in a form; empty `op`: none.
struct LocalCopy {
  std::string_view op;  ///< "motley::cut"
  graph::Form of;       ///< whose bytes are read and written
  int times = 2;        ///< of these bytes: 2 if they are read and written, 1 if written only
  bool operator==(const LocalCopy&) const = default;
};

/// One step of a change of form: a copy, an exchange, a copy.
struct Conversion {
  LocalCopy before;
  std::string_view exchange;  ///< "motley::all_gather"; empty: each device does it for itself
  graph::Form travels;        ///< of all-gather and reduce-scatter: the form whose parts travel
  LocalCopy after;
  bool operator==(const Conversion&) const = default;
};

/// How a value of this (whole) shape changes its form; empty where the forms are equal, two steps
/// where it goes over whole. What lowering emits, what prices count and what is explained:
///
///   whole -> sharded     take the own part
///   sharded -> whole     cut, all-gather, join
///   partial -> whole     all-reduce of a copy (or in place: Schedule::in_place)
///   partial -> sharded   cut, reduce-scatter, join
///   sharded -> sharded   cut, all-to-all, join where the dimensions differ, else over whole
///   any -> partial       whole on one device, zeros on the others
///
/// Parts that come one after the other lie as they should: then nothing is joined.
std::vector<Conversion> find_conversions(const std::vector<std::int64_t>& shape,
                                         const graph::Form& from, const graph::Form& to);

/// The exchange that changes the form in one step; empty: none does.
std::string_view find_exchange(const graph::Form& from, const graph::Form& to);

/// Does a value in parts become `to` by way of being whole?
bool goes_over_whole(const graph::Form& from, const graph::Form& to);

}  // namespace motley::synth
