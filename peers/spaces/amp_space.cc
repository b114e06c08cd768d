#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "peers/spaces/restricted_search.h"

namespace motley::peers {
namespace {

/// Returns AMP's ranks: for each stage its units, one per replica; empty: devices remain.
std::vector<std::vector<std::size_t>> units_by_stage(const std::vector<std::size_t>& line,
                                                     std::size_t count) {
  std::vector<std::vector<std::size_t>> stages;
  for (std::size_t s = 0; s < count && line.size() % count == 0; ++s) {
    const auto begin = line.begin() + static_cast<std::ptrdiff_t>(s * (line.size() / count));
    stages.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(line.size() / count));
  }
  return stages;
}

/// Lists all devices as units of `degree`; empty: it does not divide them, or times are unknown.
std::vector<std::size_t> all_units(const RestrictedSearch& search, int degree, std::size_t way,
                                   std::int64_t micro) {
  std::vector<std::size_t> line;
  for (std::size_t pool = 0; pool < search.costs().pools().size(); ++pool) {
    const auto unit = search.unit(pool, degree, way);
    const int devices = search.costs().pools()[pool].devices;
    if (!unit || devices % degree != 0 || !search.costs().knows(*unit, micro)) return {};
    line.insert(line.end(), static_cast<std::size_t>(devices / degree), *unit);
  }
  return line;
}

/// Finds the cuts of layers, and the time, with the least fill plus (passes - 1) of the slowest
/// stage: stage by stage, over all pairs (sum, slowest) that no other beats in both.
std::pair<std::vector<std::size_t>, double> cut_layers(
    const search::StageSums& sums, const std::vector<std::vector<std::size_t>>& stages,
    std::int64_t micro, double passes) {
  struct Label {
    double sum = 0, slowest = 0;
    std::vector<std::size_t> cuts = {};
  };
  const std::size_t layers = sums.costs().layers();
  std::vector<std::vector<Label>> at(layers + 1);
  at[0].push_back({});
  for (const std::vector<std::size_t>& units : stages) {
    const std::set<std::size_t> kinds(units.begin(), units.end());
    std::vector<std::vector<Label>> next(layers + 1);
    for (std::size_t first = 0; first < layers; ++first)
      for (std::size_t end = first + 1; end <= layers && !at[first].empty(); ++end) {
        double pass = 0;
        for (const std::size_t unit : kinds)
          pass = std::max(pass, sums.work(unit, micro).pass(first, end));
        for (const Label& label : at[first]) {
          Label made{label.sum + pass, std::max(label.slowest, pass), label.cuts};
          std::vector<Label>& here = next[end];
          const auto beats = [](const Label& a, const Label& b) {
            return a.sum <= b.sum && a.slowest <= b.slowest;
          };
          if (std::any_of(here.begin(), here.end(), [&](const Label& l) { return beats(l, made); }))
            continue;
          std::erase_if(here, [&](const Label& l) { return beats(made, l); });
          made.cuts.push_back(end);
          here.push_back(std::move(made));
        }
      }
    at = std::move(next);
  }
  std::pair<std::vector<std::size_t>, double> best{{}, INFINITY};
  for (const Label& label : at[layers]) {
    const double seconds = label.sum + (passes - 1) * label.slowest;
    if (seconds < best.second) best = {label.cuts, seconds};
  }
  return best;
}

void try_ranks(RestrictedSearch& search, const std::vector<std::vector<std::size_t>>& stages,
               std::int64_t micro) {
  const std::vector<std::int64_t> samples = search.even_samples(stages.front().size());
  const double passes =
      std::ceil(static_cast<double>(samples.front()) / static_cast<double>(micro));
  const auto [cuts, least] = cut_layers(search.sums(), stages, micro, passes);
  // A pass may have fewer samples.
  if (least * (passes - 1) / passes >= search.best_step()) return;
  search::StagePlan plan;
  for (std::size_t r = 0; r < samples.size(); ++r) {
    search::StageReplica replica{{}, micro, samples[r]};
    for (std::size_t s = 0; s < stages.size(); ++s)
      replica.stages.push_back({s == 0 ? 0 : cuts[s - 1], cuts[s], stages[s][r]});
    plan.replicas.push_back(std::move(replica));
  }
  search.offer(std::move(plan));
}

}  // namespace

void search_amp(RestrictedSearch& search) {
  for (const std::int64_t micro : search.costs().micro_batches())
    for (const int degree : search.degrees())
      for (std::size_t way = 0; way < search.ways(degree); ++way) {
        std::vector<std::size_t> line = all_units(search, degree, way, micro);
        for (const bool is_reversed : {false, true}) {
          if (is_reversed) std::reverse(line.begin(), line.end());
          for (std::size_t count = 1; count <= search.most_stages(); ++count)
            if (const auto stages = units_by_stage(line, count);
                !stages.empty() && !stages.front().empty())
              try_ranks(search, stages, micro);
        }
      }
}

}  // namespace motley::peers
