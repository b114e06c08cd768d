#include "motley/search/spmd/ways_taken.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "motley/search/spmd/best_mix.h"
#include "motley/search/spmd/form_changes.h"

namespace motley::search {

using graph::Form;
using graph::FormKind;

WaysTaken::WaysTaken(const graph::Graph& graph, const SpmdSpace& space, const BoundTerms& terms,
                     SpmdPrices& prices, const synth::Sharding& sharding,
                     const SpmdObjective& objective)
    : batch_(space.global_batch), once_(objective.once), exchange_(kBounds, 0.0) {
  add_operators(graph, space, terms, prices, sharding);
  add_updates(graph, space, prices, sharding, objective.states);
  add_changes(graph, space, terms, prices, sharding);
}

void WaysTaken::add_exchange(unsigned bounds, double seconds) {
  for (std::size_t b = 0; b < kBounds; ++b)
    if (bounds >> b & 1) exchange_[b] += seconds;
}

void WaysTaken::add_work(unsigned bounds, std::int64_t extent, std::vector<PartTime> times,
                         double count) {
  if (bounds == 0) return;
  for (PartTime& each : times) each = {count * each.whole, count * each.fixed, count * each.least};
  const auto known = std::find_if(works_.begin(), works_.end(), [&](const Work& work) {
    return work.bounds == bounds && work.extent == extent;
  });
  if (known == works_.end()) {
    works_.push_back({std::move(times), extent, bounds});
    return;
  }
  for (std::size_t c = 0; c < times.size(); ++c) {
    PartTime& sum = known->times[c];
    const double least = std::min(std::max(times[c].least, times[c].fixed), times[c].whole);
    sum = {sum.whole + times[c].whole, sum.fixed + times[c].fixed, sum.least + least};
  }
}

void WaysTaken::add_whole(unsigned bounds, const std::vector<double>& seconds, double count) {
  std::vector<PartTime> times;
  for (const double each : seconds) times.push_back({each, 0, 0});
  add_work(bounds, 0, std::move(times), count);
}

void WaysTaken::add_operators(const graph::Graph& graph, const SpmdSpace& space,
                              const BoundTerms& terms, SpmdPrices& prices,
                              const synth::Sharding& sharding) {
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    if (!space.is_needed[i]) continue;
    const OpId op(static_cast<std::int64_t>(i));
    const graph::Strategy& way = sharding.ops[i];
    const double count = space.op_count[i];
    add_exchange(terms.inner[i], count * prices.inner_exchanges(op, way));
    add_work(terms.compute[i], way.factor < 0 ? 0 : extent_of(space, op, way),
             prices.part_times(op, way), count);
  }
}

void WaysTaken::add_updates(const graph::Graph& graph, const SpmdSpace& space, SpmdPrices& prices,
                            const synth::Sharding& sharding, int states) {
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const ValueId id(static_cast<std::int64_t>(v));
    if (graph.value(id).role != graph::ValueRole::kParameter || space.kept[v].empty()) continue;
    const Form& kept = sharding.sources[v];
    std::vector<PartTime> times;
    for (const double whole : prices.update(id, graph::kWholeForm, states))
      times.push_back({whole, 0, 0});
    add_work(kBusy | kBefore | kWork, kept.kind == FormKind::kWhole ? 0 : kept.extent,
             std::move(times), once_);
  }
}

void WaysTaken::add_changes(const graph::Graph& graph, const SpmdSpace& space,
                            const BoundTerms& terms, SpmdPrices& prices,
                            const synth::Sharding& sharding) {
  std::vector<Form> homes = sharding.sources;
  for (std::size_t i = 0; i < graph.ops.size(); ++i)
    for (std::size_t r = 0; r < sharding.ops[i].results.size(); ++r)
      homes[graph.ops[i].outputs[r].index()] = sharding.ops[i].results[r];
  const auto change_to = [&](ValueId value, const Form& to, bool is_output) -> const LeastChange& {
    const bool in_bucket = is_output || graph.value(value).role == graph::ValueRole::kParameter;
    return prices.least_change(value, homes[value.index()], to, in_bucket);
  };
  for (const FormChange& each : find_changes(graph, space, sharding)) {
    const std::size_t v = each.value.index();
    const LeastChange& change = change_to(each.value, each.to, each.reader.op.is_none());
    const bool is_once =
        each.reader.op.is_none() || graph.value(each.value).role == graph::ValueRole::kParameter;
    const double count = space.value_count[v] * (is_once ? once_ : 1);
    add_exchange(terms.lanes[v], count * change.exchange);
    add_whole(terms.copies[v], change.whole, count);
    for (const LeastChange::Parts& parts : change.parts)
      add_work(terms.copies[v], parts.extent, parts.times, count);
  }
  for (const BoundTerms::Change& change : terms.changes) {
    double least = std::numeric_limits<double>::infinity();
    for (const std::size_t r : change.readers) {
      const Reader& reader = space.readers[change.value.index()][r];
      const Form& form =
          sharding.ops[reader.op.index()].operands[static_cast<std::size_t>(reader.operand)];
      least = std::min(least, change_to(change.value, form, false).exchange);
    }
    add_exchange(change.bounds, space.value_count[change.value.index()] * least);
  }
}

std::vector<double> WaysTaken::by_bound(const std::vector<BoundedKind>& kinds) const {
  std::vector<double> taken = exchange_;
  for (const Work& work : works_) {
    MeanTime mean;
    for (std::size_t c = 0; c < kinds.size(); ++c)
      mean.add(kinds[c].count, kinds[c].weight, work.times[c],
               work.extent == 0 ? PartRange{} : part_range(kinds[c].share, batch_, work.extent));
    const double seconds = work.extent == 0 ? mean.whole() : mean.split(work.extent);
    for (std::size_t b = 0; b < kBounds; ++b)
      if (work.bounds >> b & 1) taken[b] += seconds;
  }
  return taken;
}

namespace {

constexpr double kGolden = 0.6180339887498949;
constexpr int kSections = 6;  // steps of the search for a kind's best weight

using Weights = std::vector<double>;

BoundWeights best_of_bounds(const std::vector<WaysTaken>& seen, const WeightedKinds& weighted,
                            Weights weights, unsigned holding) {
  const std::vector<BoundedKind> kinds = weighted(weights);
  std::vector<std::vector<double>> rows;
  const auto drop_others = [&](std::vector<double>& by_bound) {
    for (std::size_t b = 0; b < by_bound.size(); ++b)
      if ((holding >> b & 1) == 0) by_bound[b] = 0;
  };
  for (const WaysTaken& taken : seen) {
    std::vector<double> row = taken.by_bound(kinds);
    drop_others(row);
    const auto is_finite = [](double each) { return std::isfinite(each); };
    if (std::all_of(row.begin(), row.end(), is_finite)) rows.push_back(std::move(row));
  }
  if (rows.empty()) return {std::move(weights), {}, 0};
  Mix mix = best_mix(rows);
  drop_others(mix.weights);  // they may have weight only if all rows are 0
  return {std::move(weights), std::move(mix.weights), mix.least};
}

}  // namespace

BoundWeights best_weights(const std::vector<WaysTaken>& seen, const WeightedKinds& weighted,
                          std::vector<double> kinds, unsigned holding) {
  std::vector<std::size_t> used;
  for (std::size_t k = 0; k < kinds.size(); ++k)
    if (kinds[k] > 0) used.push_back(k);
  if (used.size() == 1) used.clear();
  if (used.size() == 2) used.pop_back();  // one against the other
  BoundWeights best = best_of_bounds(seen, weighted, std::move(kinds), holding);
  for (const std::size_t k : used) {
    const Weights from = best.kinds;
    if (from[k] >= 1) continue;
    const auto at = [&](double weight) {
      Weights changed = from;
      for (std::size_t other = 0; other < from.size(); ++other)
        changed[other] = other == k ? weight : from[other] / (1 - from[k]) * (1 - weight);
      return best_of_bounds(seen, weighted, std::move(changed), holding);
    };
    double low = 0, high = 1;
    BoundWeights left = at(high - kGolden * (high - low)), right = at(low + kGolden * (high - low));
    for (int section = 0; section < kSections; ++section) {
      if (left.least < right.least) {
        low = left.kinds[k];
        left = std::move(right);
        right = at(low + kGolden * (high - low));
      } else {
        high = right.kinds[k];
        right = std::move(left);
        left = at(high - kGolden * (high - low));
      }
    }
    for (BoundWeights* each : {&left, &right})
      if (each->least > best.least) best = std::move(*each);
  }
  return best;
}

BoundWeights between(const BoundWeights& from, const BoundWeights& to, double part) {
  const auto mixed = [part](const Weights& a, const Weights& b) {
    Weights weights;
    for (std::size_t i = 0; i < a.size(); ++i) weights.push_back(a[i] + part * (b[i] - a[i]));
    return weights;
  };
  return {mixed(from.kinds, to.kinds), mixed(from.bounds, to.bounds), 0};
}

}  // namespace motley::search
