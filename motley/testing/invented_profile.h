#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "motley/base/random.h"
#include "motley/cost/measured/operator_work.h"
#include "motley/cost/measured/profile_store.h"
#include "motley/cost/measured/whole_step.h"
#include "motley/graph/model_file.h"
#include "motley/program/program_text.h"
#include "motley/search/price/costs.h"
#include "motley/search/price/device_pools.h"
#include "motley/search/price/profile_batches.h"
#include "motley/search/split/step_evaluator.h"
#include "motley/synth/lower.h"

namespace motley::search {

inline std::string node_text(const std::string& name, const std::string& host,
                             const std::string& device) {
  return fmt::format("[[node]]\nname = \"{}\"\nhost = \"{}\"\n[[node.device]]\n{}\n", name, host,
                     device);
}

/// Makes three unequal devices with `memory` each ("": their own): "emulated" on one machine, one
/// of them "far" on another, or of planning "kinds".
inline cluster::Cluster three_devices(const std::string& where, const std::string& memory = "") {
  const std::string limit = memory.empty() ? "" : "\nmemory = \"" + memory + "\"";
  std::string text = "schema = \"motley.cluster/1\"\nname = \"three\"\n";
  if (where == "kinds") {
    text += node_text("a", "h1", "kind = \"a100-40g\"" + limit) +
            node_text("b", "h2", "kind = \"v100-16g\"" + limit) +
            node_text("c", "h3", "kind = \"t4\"" + limit);
  } else {
    text += node_text("a", "h1", "kind = \"cpu\"\nspeed = 0.8" + limit) +
            node_text("b", "h1", "kind = \"cpu\"\nspeed = 0.4" + limit) +
            node_text("c", where == "far" ? "h2" : "h1", "kind = \"cpu\"\nspeed = 0.2" + limit);
  }
  text += "[[link]]\nall = true\nbandwidth = \"1Gbps\"\nlatency = \"100us\"\n";
  return *cluster::parse_cluster(text, "three");
}

/// A model on a cluster's CPU devices with invented measurements of everything. An instruction
/// takes 20 us plus 2 ns for each byte it writes, changed by up to 15 % by its key, as measurements
/// scatter. Emulated devices are slower than their speed by 10 % with much work and by 30 % with
/// little. Beside neighbours everything takes `beside` times as long. A collective takes 50 us per
/// rank, plus 8 ns per byte over a link, else 1 ns. Devices of planning kinds need no profile.
class InventedProfile {
 public:
  InventedProfile(graph::Graph graph, cluster::Cluster cluster, std::int64_t batch,
                  double beside = 1)
      : cluster_(std::make_unique<cluster::Cluster>(std::move(cluster))),
        batch_(batch),
        beside_(beside) {
    model_.graph = std::move(graph);
    model_.hash = "00000000000000aa";
    options_.torch = kTorch;
    options_.global_batch = batch;
    options_.lowering.bucket_bytes = Bytes(16 << 10);
    for (std::size_t i = 0; i < cluster_->devices.size(); ++i)
      options_.devices.emplace_back(static_cast<std::int64_t>(i));
    for (const DeviceId id : options_.devices)
      if (cluster_->device(id).kind == "cpu") measure(id);
    for (const auto& group : groups_to_measure(*cluster_, options_.devices)) measure(group);
    costs_ = load_costs(model_, *cluster_, store_, options_).value();
    evaluator_ = StepEvaluator::make(model_.graph, *cluster_, options_.lowering, costs_).value();
  }

  InventedProfile(const InventedProfile&) = delete;
  InventedProfile& operator=(const InventedProfile&) = delete;

  const graph::Model& model() const { return model_; }
  const cluster::Cluster& cluster() const { return *cluster_; }
  const Costs& costs() const { return costs_; }
  const StepEvaluator& evaluator() const { return *evaluator_; }
  plan::Problem problem() const {
    plan::Problem problem;
    problem.cluster = cluster_.get();
    problem.model_hash = model_.hash;
    problem.global_batch = batch_;
    problem.bucket_bytes = options_.lowering.bucket_bytes;
    problem.devices = options_.devices;
    return problem;
  }

 private:
  static constexpr const char* kTorch = "2.15.0";

  std::string subject() const { return profile_subject(model_.hash, options_.lowering); }

  std::vector<cost::OpEntry> operators(const cost::DeviceKey& key, std::int64_t samples,
                                       int ranks) const {
    const program::DeviceProgram program =
        synth::lower_first(model_.graph, {samples, ranks}, options_.lowering).value();
    const auto works = cost::instruction_work(program, model_.graph);
    std::vector<cost::OpEntry> entries;
    for (std::size_t i = 0; i < works.size(); ++i) {
      const program::Instruction& instruction = program.instructions[i];
      if (instruction.lane != Lane::kCompute) continue;
      double bytes = 0;
      for (const BufferId output : instruction.outputs)
        bytes += static_cast<double>(program.buffer(output).bytes().value);
      const std::string name = program::cost_key(program, instruction);
      const double scatter = 0.85 + 0.3 * SplitMix64(hash_bytes(name)).uniform();
      entries.push_back({.device = key,
                         .key = name,
                         .median = Seconds(scatter * (20e-6 + 2e-9 * bytes)),
                         .samples = 1,
                         .work = works[i]});
    }
    return entries;
  }

  void measure(DeviceId id) {
    const auto batches = profile_batches(batch_, 4096);
    const cost::DeviceKey alone = cost::device_key(cluster_->device(id), kTorch);
    const cost::DeviceKey shared = cost::shared_key(*cluster_, id, kTorch);
    for (const std::int64_t batch : batches) {
      (void)store_.put(operators(alone, batch, 1));
      std::vector<cost::OpEntry> entries = operators(shared, batch, 2);
      for (cost::OpEntry& entry : entries) entry.median = entry.median * beside_;
      (void)store_.put(entries);
    }
    (void)store_.put_batches(subject(), alone, batches);
    (void)store_.put_batches(subject(), shared, batches);
    if (!cost::has_pace(*cluster_, id)) return;
    const cost::DeviceKey key = cost::emulated_key(*cluster_, id, kTorch);
    for (const auto& [samples, slower] : {std::pair{batches.front(), 1.3}, {batches.back(), 1.1}}) {
      Seconds seconds;
      for (const cost::OpEntry& entry : operators({}, samples, 2))
        seconds += entry.median * beside_;
      cost::OpEntry step = cost::step_entry(key, subject(), samples);
      step.median = slower * seconds / cluster_->device(id).speed;
      step.samples = 1;
      (void)store_.put(std::vector{step});
    }
  }

  void measure(const std::vector<DeviceId>& group) {
    const std::string route = cost::route_key(*cluster_, group);
    const auto ranks = static_cast<int>(group.size());
    std::vector<cost::CollectiveEntry> entries;
    for (const double bytes : {4.0, 1e6})
      entries.push_back(
          {.op = "motley::all_reduce",
           .backend = cost::backend_key(*cluster_, group),
           .route = route,
           .ranks = ranks,
           .bytes = Bytes(static_cast<std::int64_t>(bytes)),
           .median = Seconds(50e-6 * ranks + (route == "local" ? 1e-9 : 8e-9) * bytes),
           .samples = 1});
    (void)store_.put(entries);
  }

  graph::Model model_;
  std::unique_ptr<cluster::Cluster> cluster_;
  std::int64_t batch_;
  double beside_;
  CostOptions options_;
  cost::ProfileStore store_ = cost::ProfileStore::open(":memory:").value();
  Costs costs_;
  std::unique_ptr<StepEvaluator> evaluator_;
};

}  // namespace motley::search
