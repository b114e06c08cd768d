#include "motley/search/stages/passes/time_bracket.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace motley::search {
namespace {

constexpr double kGrowth = 1.3;  // factor by which a time that is too short is raised
/// Ratio of a possible to an impossible time at which the bound is good enough: half a percent is
/// less than the simulator's own error.
constexpr double kBoundPrecision = 5e-3;
constexpr double kDescent = 0.02;  // by which a possible time is lowered: few answers are then no
constexpr double kReseed = 4;      // times the least time, above which columns are generated again
/// Most stages of columns that are collected beside those of the bound: short pipelines are worth
/// less by the model and more in the simulator.
constexpr std::size_t kShorter[] = {1, 2, 4, 8};
constexpr double kDiscount = 0.85;  // of the prices of devices, at which these are worth it

enum class Proofs { kToPrecision, kFirstOnly };

/// From where the shapes known so far are enough downwards, as long as it goes: questions that are
/// answered yes are cheap, a no has to be proved. With the first no it may end.
TimeBracket descend(SampleBound& bound, double least, std::int64_t samples, Proofs proofs) {
  TimeBracket bracket{least, least, {}};
  while (!bound.is_known_possible(bracket.possible, samples)) {
    bracket.possible *= kGrowth;
    if (!(bracket.possible > 0 && bracket.possible < kTooLong)) {
      bracket.possible = kTooLong;
      return bracket;
    }
    // Shapes of more devices than there are may be all that less time knew.
    if (bracket.possible > kReseed * least) bound.seed(bracket.possible, samples);
  }
  double below = bracket.possible / kGrowth;
  while (bracket.possible > below * (1 + kBoundPrecision)) {
    const double middle = std::sqrt(bracket.possible * below);
    (bound.is_known_possible(middle, samples) ? bracket.possible : below) = middle;
  }
  bracket.answer = bound.ask(bracket.possible, samples);
  for (double step = kDescent; bracket.possible > bracket.impossible * (1 + kBoundPrecision);) {
    const double tried =
        std::max(bracket.possible / (1 + step), std::sqrt(bracket.impossible * bracket.possible));
    SampleAnswer answer = bound.ask(tried, samples);
    if (answer.is_possible) {
      bracket.possible = tried;
      bracket.answer = std::move(answer);
    } else {
      bracket.impossible = tried;
      step = kDescent / 4;
      if (proofs == Proofs::kFirstOnly) break;
    }
  }
  return bracket;
}

/// Adds shorter pipelines to the columns; returns how many programs that took.
std::int64_t collect_shorter(const SearchSpace& space, const TimeBracket& start,
                             ShapeColumns& columns) {
  std::int64_t programs = 0;
  std::vector<double> prices = start.answer.prices;
  for (double& price : prices) price *= kDiscount;
  for (const std::size_t stages : kShorter) {
    ShapeLimits limits = space.question.limits;
    limits.most_stages = std::min(limits.most_stages, stages);
    const ShapeSearch search(space.sums, {space.classes.back().rounds}, limits);
    SampleBound bound(search, columns, space.classes.back().most);
    bound.collect(start.possible, space.question.global_batch, prices);
    programs += bound.programs();
  }
  return programs;
}

}  // namespace

double least_time(double from, std::int64_t wanted,
                  const std::function<std::int64_t(double)>& done_in) {
  double below = from, above = from;
  while (done_in(above) < wanted) {
    below = above;
    above *= kGrowth;
    if (!(above > 0 && above < kTooLong)) return std::numeric_limits<double>::infinity();
  }
  for (int i = 0; i < 30 && above > below * (1 + 1e-6); ++i) {
    const double middle = (below + above) / 2;
    (done_in(middle) < wanted ? below : above) = middle;
  }
  return above;
}

BoundedTime bound_time(const SearchSpace& space, double least, ShapeColumns& columns) {
  BoundedTime found;
  const bool is_bounded = space.question.is_bounded;
  const std::int64_t samples = space.question.global_batch;
  const Proofs proofs = is_bounded ? Proofs::kToPrecision : Proofs::kFirstOnly;
  for (std::size_t i = space.classes.size(); i-- > 0;) {
    const bool is_last = i + 1 == space.classes.size();
    if (!is_bounded && !is_last) break;
    const ShapeSearch search(space.sums, {space.classes[i].rounds}, space.question.limits);
    SampleBound bound(search, columns, space.classes[i].most);
    if (is_last) {
      found.bracket = descend(bound, least, samples, proofs);
      if (found.bracket.possible >= kTooLong) return found;
      found.lower_bound = found.bracket.impossible;
    } else if (bound.ask(found.lower_bound, samples).is_possible) {
      // Fewer replicas are faster.
      const double impossible = descend(bound, least, samples, proofs).impossible;
      found.lower_bound = std::min(found.lower_bound, impossible);
    }
    found.programs += bound.programs();
  }
  if (space.runs("shorter")) found.programs += collect_shorter(space, found.bracket, columns);
  return found;
}

}  // namespace motley::search
