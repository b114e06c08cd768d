#include "motley/search/spmd/ways_taken.h"

#include <algorithm>
#include <limits>
#include <utility>

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

}  // namespace motley::search
