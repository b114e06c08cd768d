#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "peers/spaces/restricted_search.h"

namespace motley::peers {
namespace {

constexpr double kLowerLimit = 1.01;  // of the slowest stage, between programs

/// The pipeline's last stages. T: a micro-batch through a stage; C: its message to the next.
struct HarpTail {
  double sum = 0;             // of T and C
  double slowest = 0;         // of T and C
  std::int64_t launched = 0;  // micro-batches that its first stage starts before a backward
  std::vector<search::ShapeStage> stages = {};
};

/// HARP's program for one micro-batch size, under a limit of T and C: stages and pools from last to
/// first. A state is pool, used devices and remaining layers; it keeps its tail of least sum.
class HarpProgram {
 public:
  HarpProgram(const RestrictedSearch& search, const search::ShapeSearch& shapes, std::int64_t micro)
      : sums_(search.sums()), shapes_(shapes), micro_(micro) {
    passes_ = (search.batch() + micro - 1) / micro;
    const search::StageCosts& costs = sums_.costs();
    for (std::size_t pool = 0; pool < costs.pools().size(); ++pool) {
      std::vector<std::size_t>& units = units_.emplace_back();
      for (const bool recomputes : {true, false}) {
        for (const int degree : search.degrees())
          for (std::size_t u = 0; u < costs.units().size(); ++u)
            if (costs.units()[u] == search::StageUnit{pool, degree, recomputes} &&
                costs.knows(u, micro))
              units.push_back(u);
        if (!units.empty()) break;
      }
    }
  }

  std::optional<HarpTail> find(double limit) const {
    const search::StageCosts& costs = sums_.costs();
    // By first layer: results of the later pools.
    std::vector<std::optional<HarpTail>> behind(costs.layers() + 1);
    behind.back() = HarpTail{};
    for (std::size_t pool = costs.pools().size(); pool-- > 0;) {
      const auto devices = static_cast<std::size_t>(costs.pools()[pool].devices);
      std::vector<std::vector<std::optional<HarpTail>>> used(
          devices + 1, std::vector<std::optional<HarpTail>>(costs.layers() + 1));
      used[0] = std::move(behind);
      for (std::size_t n = 0; n < devices; ++n)
        for (const std::size_t unit : units_[pool]) {
          const std::size_t after = n + static_cast<std::size_t>(costs.units()[unit].degree());
          for (std::size_t end = 1; after <= devices && end <= costs.layers(); ++end)
            if (used[n][end]) extend(*used[n][end], unit, end, limit, used[after]);
        }
      behind = std::move(used[devices]);
    }
    return behind.front();
  }

  double estimate(const HarpTail& tail) const {
    return tail.sum + static_cast<double>(passes_ - 1) * tail.slowest;
  }

 private:
  /// Prepends a stage of layers [begin, end), for all begins.
  void extend(const HarpTail& tail, std::size_t unit, std::size_t end, double limit,
              std::vector<std::optional<HarpTail>>& into) const {
    const search::WorkSums& work = sums_.work(unit, micro_);
    double message = 0;
    std::int64_t launched = 1;
    if (!tail.stages.empty()) {
      const std::size_t next = tail.stages.front().unit;
      message = shapes_.messages(unit, next, end, micro_) / 2;
      const bool is_near = sums_.costs().units()[next].pool() == sums_.costs().units()[unit].pool();
      launched = tail.launched + (is_near || message < limit / 10 ? 1
                                  : message < limit / 2           ? 2
                                                                  : 3);
    }
    const std::int64_t kept = std::min(launched, passes_);
    for (std::size_t begin = end; begin-- > 0;) {
      const double pass = work.pass(begin, end);
      const double slowest = std::max({pass, message, tail.slowest});
      const double sum = tail.sum + pass + message;
      if (slowest > limit) break;
      if (into[begin] && into[begin]->sum <= sum) continue;
      if (sums_.most_in_flight(unit, begin, end, micro_, kept) < kept) continue;
      HarpTail made{sum, slowest, launched, {{begin, end, unit}}};
      made.stages.insert(made.stages.end(), tail.stages.begin(), tail.stages.end());
      into[begin] = std::move(made);
    }
  }

  const search::StageSums& sums_;
  const search::ShapeSearch& shapes_;
  std::int64_t micro_, passes_;
  std::vector<std::vector<std::size_t>> units_;  // by pool
};

}  // namespace

void search_harp(RestrictedSearch& search) {
  const search::ShapeSearch shapes(search.sums(), {});
  for (const std::int64_t micro : search.costs().micro_batches()) {
    if (micro > search.batch()) break;
    const HarpProgram program(search, shapes, micro);
    for (double limit = std::numeric_limits<double>::max();;) {
      const auto found = program.find(limit);
      if (!found) break;
      limit = found->slowest / kLowerLimit;
      if (program.estimate(*found) >= search.best_step()) continue;
      search::StageReplica replica{{}, micro, search.batch(), search::StageSchedule::kH1F1B};
      for (const auto& [first, end, unit] : found->stages)
        replica.stages.push_back({first, end, unit});
      search.offer({{std::move(replica)}}, search::StagePlacing::kInOrder);
    }
  }
}

}  // namespace motley::peers
