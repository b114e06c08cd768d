#pragma once

#include <cstdint>
#include <functional>

#include "motley/search/stages/passes/search_space.h"
#include "motley/search/stages/shapes/sample_bound.h"

namespace motley::search {

/// Seconds that no step takes: what takes so long cannot be done, as where a link is missing.
inline constexpr double kTooLong = 1e15;

/// Finds the least time, from some on, in which as many samples are done, if what is done does not
/// fall with it; infinity: none.
double least_time(double from, std::int64_t wanted,
                  const std::function<std::int64_t(double)>& done_in);

/// Largest time that is proved too short, smallest that is not.
struct TimeBracket {
  double impossible = 0, possible = 0;
  SampleAnswer answer;  ///< at `possible`
};

struct BoundedTime {
  TimeBracket bracket;     ///< of the largest class, whose shapes are put together
  double lower_bound = 0;  ///< of all plans; 0: none
  std::int64_t programs = 0;
};

/// Bounds the step over all numbers of replicas, from a bound on. The shapes found on the way join
/// the columns, and shorter ones that are worth nearly as much. A bracket that ends at kTooLong: no
/// replicas do the batch.
BoundedTime bound_time(const SearchSpace& space, double least, ShapeColumns& columns);

}  // namespace motley::search
