// Measures planning time over clusters of several kinds of devices that exchange in buckets, priced
// by tables in memory. Prints one table and writes {"rows": [...]} to the given file.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/base/random.h"
#include "motley/search/planners.h"
#include "motley/search/price/profile_batches.h"
#include "motley/testing/table_evaluator.h"

namespace {

using motley::Bytes;
using motley::DeviceId;
using motley::NodeId;
using motley::search::TableEvaluator;

struct Case {
  std::string name;
  int devices = 0, kinds = 0, per_node = 1, buckets = 0;
  std::int64_t batch = 0;
  double exchange_share = 0.1;  // of the mean compute, for the whole group
};

/// Makes a device whose backward pass fills its buckets one after the other.
TableEvaluator::Device make_device(double slowness, const Case& c) {
  TableEvaluator::Device device;
  device.shared.ready.resize(static_cast<std::size_t>(c.buckets));
  for (const std::int64_t batch : motley::search::profile_batches(c.batch, 4096)) {
    const auto samples = static_cast<double>(batch);
    // Small batches are inefficient: the time per sample falls towards `slowness`.
    const double seconds = slowness * (samples + 3 * samples / (samples + 4) + 2);
    for (int k = 0; k < c.buckets; ++k) {
      const double part = 0.4 + 0.6 * (k + 1) / c.buckets;
      device.shared.ready[static_cast<std::size_t>(k)].points.emplace_back(samples, seconds * part);
    }
    device.shared.end.points.emplace_back(samples, seconds);
    device.alone.end.points.emplace_back(samples, seconds + slowness);
  }
  device.shared.update.assign(static_cast<std::size_t>(c.buckets), slowness / c.buckets);
  device.base = Bytes(std::int64_t{1} << 30);
  device.per_sample = Bytes(std::int64_t{8} << 20);
  return device;
}

motley::cluster::Cluster make_cluster(const Case& c) {
  motley::cluster::Cluster cluster;
  cluster.name = c.name;
  for (int i = 0; i < c.devices; ++i) {
    if (i % c.per_node == 0) cluster.nodes.push_back({.name = fmt::format("n{}", i / c.per_node)});
    motley::cluster::Device device;
    device.node = NodeId(i / c.per_node);
    device.name = fmt::format("n{}:{}", i / c.per_node, i % c.per_node);
    device.kind = "cpu";
    device.index = device.local_index = i % c.per_node;
    if (i % 2 == 0) device.memory = Bytes(std::int64_t{2} << 30);
    cluster.devices.push_back(device);
  }
  cluster.links.push_back({.between = {},
                           .bandwidth = motley::BytesPerSecond(1.25e9),
                           .latency = motley::Seconds(1e-4)});
  return cluster;
}

/// Returns the shortest of several runs, the least disturbed one.
double plan_seconds(const motley::plan::Problem& problem, const TableEvaluator& evaluator,
                    motley::plan::PlanOutcome& outcome) {
  const auto planner = motley::search::make_planner("split", {&evaluator});
  double shortest = 1e9;
  for (int run = 0; run < 7; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    outcome = (*planner)->plan(problem).value();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    shortest = std::min(shortest, seconds.count());
  }
  return shortest;
}

motley::Json run_case(const Case& c) {
  const motley::cluster::Cluster cluster = make_cluster(c);
  motley::SplitMix64 random(1);
  std::vector<double> slowness;
  for (int kind = 0; kind < c.kinds; ++kind) slowness.push_back(1e-3 * (1 + 4 * random.uniform()));
  std::vector<TableEvaluator::Device> devices;
  for (int i = 0; i < c.devices; ++i) {
    devices.push_back(make_device(slowness[static_cast<std::size_t>(i % c.kinds)], c));
  }
  const double compute = 3e-3 * static_cast<double>(c.batch) / c.devices;
  const double whole = compute * c.exchange_share / c.buckets;
  const int count = c.devices;
  const TableEvaluator evaluator(devices, [whole, count, &c](const std::vector<DeviceId>& group) {
    const auto size = static_cast<double>(group.size());
    motley::search::GroupExchanges times;
    times.exchange.assign(static_cast<std::size_t>(c.buckets), whole * size / count);
    return times;
  });
  motley::plan::Problem problem;
  problem.cluster = &cluster;
  problem.global_batch = c.batch;
  for (int i = 0; i < c.devices; ++i) problem.devices.emplace_back(i);
  motley::plan::PlanOutcome outcome;
  const double seconds = plan_seconds(problem, evaluator, outcome);
  motley::Json row;
  row["case"] = c.name;
  row["devices"] = c.devices;
  row["kinds"] = c.kinds;
  row["buckets"] = c.buckets;
  row["global_batch"] = c.batch;
  row["plan_s"] = seconds;
  row["used"] = outcome.plan ? outcome.plan->replicas.size() : 0;
  row["step_s"] = outcome.predicted_step.value;
  row["equal_split_s"] = outcome.equal_split.step.value;
  row["lower_bound_s"] = outcome.lower_bound.value;
  fmt::print("{:<28} {:>7} {:>5} {:>7} {:>6} {:>9.3f} {:>5} {:>9.2f} {:>9.2f}\n", c.name, c.devices,
             c.kinds, c.buckets, c.batch, 1e3 * seconds, row["used"].get<std::size_t>(),
             1e3 * outcome.predicted_step.value, 1e3 * outcome.equal_split.step.value);
  return row;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<Case> cases = {
      {"small", 3, 3, 1, 8, 64, 0.1},
      {"compute bound", 64, 4, 1, 8, 4096, 0.1},
      {"exchange bound", 64, 4, 1, 8, 4096, 3.0},
      {"nodes of 8", 64, 4, 8, 8, 4096, 1.0},
      {"all different", 64, 64, 1, 8, 4096, 1.0},
      {"large", 256, 4, 8, 8, 16384, 1.0},
  };
  fmt::print("{:<28} {:>7} {:>5} {:>7} {:>6} {:>9} {:>5} {:>9} {:>9}\n", "case", "devices", "kinds",
             "buckets", "batch", "plan ms", "used", "step ms", "equal ms");
  motley::Json json;
  json["rows"] = motley::Json::array();
  for (const Case& c : cases) json["rows"].push_back(run_case(c));
  if (argc < 2) return 0;
  const auto written = motley::write_file_atomic(argv[1], json.dump(2) + "\n");
  if (!written) fmt::print(stderr, "{}\n", written.error().message);
  return written ? 0 : 1;
}
