#include "motley/search/model_stages/tied_weights.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace motley::search {
namespace {

/// By operator of a region: its split there; none on one device.
using Splits = std::map<std::int64_t, plan::OperatorSplit>;

Splits read_splits(const plan::Region& region) {
  Splits splits;
  std::size_t next = 0;
  for (const plan::OpRange& range : region.covers)
    for (std::int64_t op = range.first; op < range.end; ++op)
      splits[op] = next < region.operators.size() ? region.operators[next++]  // several devices
                                                  : plan::OperatorSplit();
  return splits;
}

void write_splits(const Splits& splits, plan::Region& region) {
  region.covers.clear();
  region.operators.clear();
  for (const auto& [op, split] : splits) {
    plan::append(region.covers, op);
    if (region.devices.size() > 1) region.operators.push_back(split);
  }
  for (const plan::OpRange& range : std::exchange(region.recomputes, {}))
    for (std::int64_t op = range.first; op < range.end; ++op)
      if (splits.contains(op)) plan::append(region.recomputes, op);
}

class TiedWeights {
 public:
  TiedWeights(const graph::Graph& graph, plan::Replica& replica)
      : graph_(graph), replica_(replica) {
    for (const plan::Region& region : replica.regions) splits_.push_back(read_splits(region));
    readers_.resize(graph.values.size());
    for (std::size_t i = 0; i < graph.ops.size(); ++i)
      graph::for_each_value(graph.ops[i].arguments, [&](ValueId value) {
        if (graph.value(value).role == graph::ValueRole::kParameter)
          readers_[value.index()].insert(static_cast<std::int64_t>(i));
      });
  }

  void run() {
    for (std::size_t v = 0; v < readers_.size(); ++v)
      if (readers_[v].size() > 1) give(ValueId(static_cast<std::int64_t>(v)));
    for (std::size_t r = 0; r < splits_.size(); ++r) write_splits(splits_[r], replica_.regions[r]);
  }

 private:
  void give(ValueId parameter) {
    std::map<std::size_t, std::vector<std::int64_t>> by_region;
    for (const std::int64_t op : readers_[parameter.index()])
      for (std::size_t r = 0; r < splits_.size(); ++r)
        if (splits_[r].contains(op)) by_region[r].push_back(op);
    if (by_region.size() < 2) return;
    const std::size_t owner = by_region.begin()->first;
    for (const auto& [region, ops] : by_region) {
      const bool are_alone = std::all_of(ops.begin(), ops.end(), [&](std::int64_t op) {
        return reads_only(graph_.op(OpId(op)), parameter);
      });
      if (region == owner || !are_alone) continue;
      for (const std::int64_t op : ops) splits_[owner].insert(splits_[region].extract(op));
      std::erase_if(replica_.regions[region].parameters, [&](const plan::KeptParameter& kept) {
        return kept.name == graph_.value(parameter).name;
      });
    }
  }

  static bool reads_only(const graph::Op& op, ValueId parameter) {
    bool is_only = true;
    graph::for_each_value(op.arguments,
                          [&](ValueId value) { is_only = is_only && value == parameter; });
    return is_only;
  }

  const graph::Graph& graph_;
  plan::Replica& replica_;
  std::vector<Splits> splits_;                   // by region
  std::vector<std::set<std::int64_t>> readers_;  // by value: operators that read the parameter
};

}  // namespace

plan::Plan give_tied_weights(const graph::Graph& graph, const plan::Plan& plan) {
  plan::Plan given = plan;
  for (plan::Replica& replica : given.replicas)
    if (replica.regions.size() > 1) TiedWeights(graph, replica).run();
  return given;
}

}  // namespace motley::search
