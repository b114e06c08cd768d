// Predicts transformer blocks' operators (kinds.cc) on each device kind from another kind's times.
#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "bench/accuracy/kind_blocks.h"
#include "bench/accuracy/row.h"
#include "motley/cost/operators/carried_times.h"

namespace motley::bench {
namespace {

using Pass = peers::KindSample BlockOperator::*;
constexpr int kShares = 20;  // steps from 0 to 1 in which the share is fitted

/// A block as launch + share carried + (1 - share) figures.
struct CarriedBlock {
  double launch = 0, carried = 0, figures = 0, measured = 0;
  double at(double share) const { return launch + share * carried + (1 - share) * figures; }
};
using CarriedBlocks = std::vector<CarriedBlock>;

Seconds shortest(const std::map<BlockKey, Block>& blocks, Pass pass) {
  Seconds shortest(1);
  for (const auto& [key, block] : blocks)
    for (const auto& [name, op] : block.operators)
      shortest = std::min(shortest, (op.*pass).measured);
  return shortest;
}

double figure_seconds(const peers::KindSample& sample, const cost::KindEfficiency& efficiency) {
  return sample.flop_seconds / efficiency.flops + sample.byte_seconds / efficiency.bytes;
}

class Kinds {
 public:
  static Result<Kinds> read(const std::string& data) {
    Kinds kinds;
    MOTLEY_ASSIGN(kinds.blocks_, read_kind_blocks(data));
    for (const auto& [name, blocks] : kinds.blocks_) {
      MOTLEY_ASSIGN(kinds.figures_[name], cluster::find_kind(name));
    }
    return kinds;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& [name, blocks] : blocks_) names.push_back(name);
    return names;
  }
  /// Returns the kind from which `wanted` is carried, of all kinds not in `without`.
  std::string nearest(const std::string& wanted, const std::vector<std::string>& without) const {
    std::vector<cluster::PlanningKind> measured;
    for (const auto& [name, figures] : figures_)
      if (name != wanted && std::find(without.begin(), without.end(), name) == without.end())
        measured.push_back(figures);
    return std::string(cost::nearest_kind(figures_.at(wanted), measured)->name);
  }
  /// Returns blocks of both kinds, with figures by efficiencies fitted without `there` and `out`.
  Result<CarriedBlocks> carry(const std::string& here, const std::string& there,
                              const std::string& out, Pass pass) const {
    std::vector<peers::KindSample> samples;
    for (const auto& [kind, blocks] : blocks_)
      for (const auto& [key, block] : blocks)
        if (kind != there && kind != out) samples.push_back(block.forward());
    MOTLEY_ASSIGN(cost::KindEfficiency efficiency, peers::fit_efficiency(samples));
    const Seconds launch = shortest(blocks_.at(here), pass);
    CarriedBlocks result;
    for (const auto& [key, block] : blocks_.at(there)) {
      const auto found = blocks_.at(here).find(key);
      if (found == blocks_.at(here).end()) continue;
      CarriedBlock& sum = result.emplace_back();
      for (const auto& [name, op] : block.operators) {
        const peers::KindSample& from = found->second.operators.at(name).*pass;
        const cost::KindRatio figures{Seconds(figure_seconds(from, efficiency)),
                                      Seconds(figure_seconds(op.*pass, efficiency))};
        const double all = cost::carried_seconds(from.measured, launch, figures, 1).value;
        const double none = cost::carried_seconds(from.measured, launch, figures, 0).value;
        const double kept = none - figures.there.value;
        sum.launch += kept;
        sum.carried += all - kept;
        sum.figures += figures.there.value;
        sum.measured += (op.*pass).measured.value;
      }
    }
    return result;
  }

 private:
  KindBlocks blocks_;
  std::map<std::string, cluster::PlanningKind> figures_;
};

/// Finds the share of least mean error.
double fit_share(const CarriedBlocks& blocks) {
  double best = 0, least = INFINITY;
  for (int step = 0; step <= kShares; ++step) {
    const double share = static_cast<double>(step) / kShares;
    double sum = 0;
    for (const CarriedBlock& block : blocks) sum += std::abs(block.at(share) / block.measured - 1);
    if (sum >= least) continue;
    least = sum;
    best = share;
  }
  return best;
}

/// Predicts one kind from some others; the rest give share and interval in the same way.
Result<void> add_cases(const Kinds& kinds, const std::string& wanted, bool from_nearest, Pass pass,
                       std::vector<Case>& cases) {
  CarriedBlocks known, asked;
  for (const std::string& there : kinds.names())
    for (const std::string& here : kinds.names()) {
      const bool is_asked = there == wanted;
      if (here == there || (!is_asked && here == wanted)) continue;
      if (from_nearest && here != kinds.nearest(there, {wanted})) continue;
      MOTLEY_ASSIGN(const CarriedBlocks blocks, kinds.carry(here, there, wanted, pass));
      CarriedBlocks& into = is_asked ? asked : known;
      into.insert(into.end(), blocks.begin(), blocks.end());
    }
  const double share = fit_share(known);
  std::vector<double> residuals;
  for (const CarriedBlock& block : known) residuals.push_back(block.measured / block.at(share) - 1);
  for (const CarriedBlock& block : asked)
    cases.push_back({cost::conformal_interval(block.at(share), residuals), block.measured});
  return {};
}

Result<Row> carried_row(const Kinds& kinds, bool from_nearest, Pass pass) {
  const bool is_forward = pass == &BlockOperator::forward;
  Row row{.set = fmt::format("carried, from {}, {}", from_nearest ? "nearest" : "any",
                             is_forward ? "forward" : "backward"),
          .metric = "time",
          .protocol = fmt::format(
              "the same blocks, {} operators; each kind from the measurements on {}, launch cost "
              "the shortest operator there, efficiencies and share from the other kinds",
              is_forward ? "forward" : "backward",
              from_nearest ? "the other kind of the nearest f16 rate" : "each other kind")};
  row.to_reach = 0.168;  // reached by figures alone, forward
  for (const std::string& wanted : kinds.names())
    MOTLEY_RETURN_IF_ERROR(add_cases(kinds, wanted, from_nearest, pass, row.cases));
  return row;
}

}  // namespace

Rows carried_rows(const std::string& data) {
  MOTLEY_ASSIGN(const Kinds kinds, Kinds::read(data));
  std::vector<Row> rows;
  for (const bool from_nearest : {true, false})
    for (const Pass pass : {&BlockOperator::forward, &BlockOperator::backward}) {
      MOTLEY_ASSIGN(rows.emplace_back(), carried_row(kinds, from_nearest, pass));
    }
  return rows;
}

}  // namespace motley::bench
