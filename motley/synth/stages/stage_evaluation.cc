#include "motley/synth/stages/stage_evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "motley/program/program_text.h"
#include "motley/synth/ranks/sample_sharding.h"
#include "motley/synth/ranks/sharded_plan.h"
#include "motley/synth/stages/lower_stages.h"

namespace motley::synth {
namespace {

/// The name of a parameter or buffer; "": the value is none. Views of it are values as any other:
/// a region can have one without having the parameter.
const std::string& kept_name(const graph::Value& value) {
  static const std::string none;
  const bool is_kept =
      value.role == graph::ValueRole::kParameter || value.role == graph::ValueRole::kBuffer;
  return is_kept ? value.name : none;
}

/// By operator of the graph that evaluates its region of the replica.
class EvaluationRegions {
 public:
  EvaluationRegions(const TrainedAndEvaluated& graphs, const plan::Replica& replica)
      : graph_(graphs.evaluation) {
    find_holders(graphs.training, replica);
  }

  Result<std::vector<std::size_t>> find() {
    const std::size_t count = graph_.ops.size();
    std::vector<std::optional<std::size_t>> regions(count);
    for (std::size_t i = 0; i < count; ++i) MOTLEY_RETURN_IF_ERROR(place(i, regions));
    // What is made of nothing that is anywhere is where it is read first.
    std::vector<std::optional<std::size_t>> read(graph_.values.size());
    for (std::size_t i = count; i-- > 0;) {
      for (const ValueId output : graph_.ops[i].outputs)
        if (!regions[i]) regions[i] = read[output.index()];
      if (!regions[i]) regions[i] = 0;
      graph::for_each_value(graph_.ops[i].arguments,
                            [&](ValueId value) { read[value.index()] = regions[i]; });
    }
    std::vector<std::size_t> found;
    for (const auto& region : regions) found.push_back(*region);
    return found;
  }

 private:
  void find_holders(const graph::Graph& training, const plan::Replica& replica) {
    for (std::size_t r = 0; r < replica.regions.size(); ++r) {
      std::vector<plan::OpRange> covers = replica.regions[r].covers;
      if (covers.empty()) covers = {{0, static_cast<std::int64_t>(training.ops.size())}};
      for (const plan::OpRange& range : covers)
        for (std::int64_t op = range.first; op < range.end; ++op)
          graph::for_each_value(training.op(OpId(op)).arguments, [&](ValueId value) {
            const std::string& name = kept_name(training.value(value));
            if (!name.empty()) holders_[name].insert(r);
          });
    }
  }

  Result<void> place(std::size_t i, std::vector<std::optional<std::size_t>>& regions) const {
    const graph::Op& op = graph_.ops[i];
    std::optional<std::size_t> last;               // of what it reads
    std::optional<std::set<std::size_t>> holders;  // of all parameters that it reads
    graph::for_each_value(op.arguments, [&](ValueId value) {
      const auto known = holders_.find(kept_name(graph_.value(value)));
      if (known != holders_.end()) {
        std::set<std::size_t> common;
        for (const std::size_t region : known->second)
          if (!holders || holders->contains(region)) common.insert(region);
        holders = std::move(common);
      }
      const OpId producer = graph_.value(value).producer;
      if (!producer.is_none() && regions[producer.index()])
        last = std::max(last.value_or(0), *regions[producer.index()]);
    });
    if (!holders) {
      regions[i] = last;
    } else if (holders->empty()) {
      return usage_error("synth.unsupported",
                         fmt::format("evaluation: operator {} in module '{}' reads parameters that "
                                     "no region of the replica has together",
                                     op.full_name(), op.module));
    } else {
      regions[i] = last && holders->contains(*last) ? *last : *holders->begin();
    }
    return {};
  }

  const graph::Graph& graph_;
  std::map<std::string, std::set<std::size_t>> holders_;
};

/// How several devices run their operators: by samples, with parameters as training keeps them.
void split_samples(const graph::Graph& graph, std::int64_t samples, const cluster::Cluster& cluster,
                   plan::Region& region) {
  Sharding sharding;
  for (const DeviceId device : region.devices)
    sharding.devices.push_back(cluster.device(device).name);
  sharding.shares = region.shares;
  sharding.batch = samples;
  spread_samples(graph, sharding);
  const plan::Region whole = make_region(graph, sharding, cluster);
  for (const plan::OpRange& range : region.covers)
    for (std::int64_t op = range.first; op < range.end; ++op)
      region.operators.push_back(whole.operators[static_cast<std::size_t>(op)]);
}

}  // namespace

Result<program::Program> lower_stage_evaluation(const TrainedAndEvaluated& graphs,
                                                const plan::Plan& plan,
                                                const cluster::Cluster& cluster,
                                                const std::vector<program::Group>& groups,
                                                std::int64_t samples) {
  const plan::Replica& trained = *std::max_element(
      plan.replicas.begin(), plan.replicas.end(),
      [](const plan::Replica& a, const plan::Replica& b) { return a.samples < b.samples; });
  MOTLEY_ASSIGN(const std::vector<std::size_t> of, EvaluationRegions(graphs, trained).find());
  plan::Plan evaluating = plan;
  evaluating.global_batch = samples;
  evaluating.replicas = {{samples, {}, 1}};
  for (std::size_t r = 0; r < trained.regions.size(); ++r) {
    plan::Region region = trained.regions[r];
    region.covers.clear();
    region.operators.clear();
    region.exchanges.clear();
    region.recomputes.clear();
    region.ahead = 0;
    region.turns = 1;
    for (std::size_t i = 0; i < of.size(); ++i)
      if (of[i] == r) plan::append(region.covers, static_cast<std::int64_t>(i));
    if (region.covers.empty()) continue;
    if (region.devices.size() > 1) split_samples(graphs.evaluation, samples, cluster, region);
    evaluating.replicas[0].regions.push_back(std::move(region));
  }
  if (evaluating.replicas[0].regions.size() == 1) evaluating.replicas[0].regions[0].covers.clear();
  LowerOptions options;
  options.bucket_bytes = plan.bucket_bytes;
  options.updates = plan.updates;
  MOTLEY_ASSIGN(program::Program program, lower_stages(graphs.evaluation, evaluating, cluster,
                                                       options, {plan::members(plan), groups}));
  MOTLEY_RETURN_IF_ERROR(program::verify_program(program, graphs.evaluation.name));
  program.model_hash = plan.model_hash;
  return program;
}

}  // namespace motley::synth
