// Plans stages, replicas and micro-batches over unequal devices. Compares other planners'
// restrictions (`motley plan --planner sailor` and so on), as their best plan's step over the whole
// space's, with these planners' reports. Usage: bench_stages DATA OUT.json [PART OF A NAME]; DATA
// holds sailor, zorse and harp. Prints one table; a row per instance. Planning time is that of
// `motley plan --planner stages`, including reading files and clusters.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bench/stages_case.h"
#include "bench/stages_harp.h"
#include "bench/stages_restricted.h"
#include "bench/stages_zones.h"
#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/cluster/kinds.h"
#include "motley/control/planning/layers.h"
#include "motley/cost/layers/sailor.h"
#include "peers/import/csv.h"

namespace motley {
namespace {

using bench::cpu_seconds;

struct Nodes {
  const char* kind;
  const char* memory;
  int devices;
};
std::string cluster_text(const std::vector<Nodes>& all) {
  std::string text = "schema = \"motley.cluster/1\"\nname = \"bench\"\n";
  int node = 0;
  for (const Nodes& nodes : all)
    for (int i = 0; i < nodes.devices; i += 4, ++node)
      text += bench::node_text(node, nodes.kind, 4, nodes.memory);
  return text + "[[link]]\nall = true\nbandwidth = \"50Gbps\"\nlatency = \"20us\"\n";
}

/// A row of Sailor's evaluation (facts of its planner's release): step and planning time.
struct SailorCase {
  const char* model;
  std::int64_t batch;
  int fast, slow;
  double step_s, cpu_s;  // 0: not reported
};
constexpr SailorCase kSailorCases[] = {
    {"OPT-350", 1024, 16, 16, 13.00, 9},      {"OPT-350", 1024, 32, 96, 5.88, 10},
    {"OPT-350", 1024, 80, 240, 2.77, 13},     {"OPT-350", 1024, 128, 384, 1.91, 17},
    {"GPT-Neo-2.7", 2048, 16, 16, 83.3, 0},   {"GPT-Neo-2.7", 2048, 32, 96, 38.1, 0},
    {"GPT-Neo-2.7", 2048, 128, 384, 11.2, 33}};

control::LayerFiles sailor_files(const std::string& data, const std::string& model) {
  const std::string folder = data + "/sailor";
  control::LayerFiles files;
  for (const char* kind : {"A100-40", "V100-16"})
    files.times.push_back(
        fmt::format("{}={}/profiles/{}/{}/profile.json", kind, folder, model, kind));
  files.sizes = folder + "/llm_info.json";
  files.model = model;
  files.network = folder + "/network/network_coeffs_all_homo.json";
  files.pairs = folder + "/network/multizone_bandwidths_het.json";
  files.zone = "us-central1-a";
  return files;
}

Result<Json> run_sailor(const std::string& data, const SailorCase& of) {
  const std::string text =
      cluster_text({{"a100-40g", "40376MiB", of.fast}, {"v100-16g", "16384MiB", of.slow}});
  MOTLEY_ASSIGN(const bench::PlannedCase planned,
                bench::plan_case(sailor_files(data, of.model), text, of.batch));
  const search::StageOutcome& outcome = planned.outcome;
  const double step = outcome.best->price.step.value, seconds = planned.cpu_seconds;
  const bench::Restrictions& restricted = planned.restricted;
  const double apart = outcome.apart_bound.value_or(outcome.lower_bound).value;
  fmt::print(
      "{:<12} {:>4} + {:<4} {:>8.3f} {:>8.3f} {:>8.3f} {:>5.1f} % {:>8.3f} {:>8.2f} {:>6.2f}{}\n",
      of.model, of.fast, of.slow, step, planned.program.value, outcome.lower_bound.value,
      100 * outcome.gap(), apart, of.step_s, seconds, restricted.columns(step));
  std::fflush(stdout);
  return Json{{"model", of.model},
              {"cluster", fmt::format("{} a100-40g + {} v100-16g", of.fast, of.slow)},
              {"planner", "stages"},
              {"predicted_step_s", step},
              {"program_step_s", planned.program.value},
              {"best_baseline_s", restricted.best()},
              {"restricted_s", restricted.to_json()},
              {"lower_bound_s", outcome.lower_bound.value},
              {"apart_bound_s", apart},
              {"plan_cpu_s", seconds},
              {"reference_s", of.step_s},
              {"reference_cpu_s", of.cpu_s > 0 ? Json(of.cpu_s) : Json(nullptr)}};
}

/// Reads Zorse's layer times. Every block is recomputed, as in Zorse's formula. Activations,
/// embedding, head and update are not in its times and not counted.
Result<cost::LayerProfile> read_zorse(const std::string& data) {
  constexpr std::size_t kBlocks = 22;
  constexpr std::int64_t kWeights = 51'384'320;
  MOTLEY_ASSIGN(const peers::CsvTable table,
                peers::CsvTable::read(data + "/zorse/layer_times.csv"));
  cost::LayerProfile profile{.model = "deepspeedllama_tiny"};
  for (std::size_t row = 0; row < table.rows(); ++row) {
    const std::string& kind = table.text(row, 1);
    if (table.text(row, 0) != profile.model || table.text(row, 2) != "512" ||
        table.text(row, 3) != "float16" || (kind != "l4" && kind != "a6000" && kind != "p40"))
      continue;
    MOTLEY_ASSIGN(const std::int64_t batch, table.positive_integer(row, 4));
    MOTLEY_ASSIGN(const double forward, table.positive_number(row, 5));
    MOTLEY_ASSIGN(const double backward, table.positive_number(row, 6));
    profile.times[kind][1][batch].assign(
        kBlocks, {Seconds(forward * 1e-3), Seconds((forward + backward) * 1e-3), Seconds(0)});
  }
  profile.sizes[1].assign(
      kBlocks, {kWeights, Bytes(4 * kWeights), Bytes(16 * kWeights), Bytes(0), Bytes(2'097'152)});
  return profile;
}

/// Runs Zorse's published instance: a LLaMA of 1.3 billion weights on a host of four unequal GPUs.
Result<Json> run_zorse(const std::string& data) {
  constexpr std::int64_t kBatch = 128;
  constexpr double kPublished = 7.721375;  // s, predicted by its own formula
  MOTLEY_ASSIGN(const cost::LayerProfile profile, read_zorse(data));
  const double start = cpu_seconds();
  MOTLEY_ASSIGN(const auto cluster, cluster::parse_cluster(R"(schema = "motley.cluster/1"
name = "zorse"
[[node]]
name = "h0"
[[node.device]]
kind = "l4"
count = 2
memory = "23034MiB"
[[node.device]]
kind = "a6000"
memory = "49140MiB"
[[node.device]]
kind = "p40"
memory = "23040MiB"
[[link]]
between = ["h0"]
bandwidth = "88.64Gbps"
latency = "4us"
)",
                                                           "zorse"));
  MOTLEY_ASSIGN(const search::ClusterPools pools, search::find_pools(cluster));
  MOTLEY_ASSIGN(const auto costs, search::LayerStageCosts::make(
                                      profile, pools.pools, search::cluster_hops(cluster, pools)));
  const search::StageQuestion question{&costs, kBatch};
  MOTLEY_ASSIGN(search::StageOutcome outcome, search::find_stage_plan(question));
  const double seconds = cpu_seconds() - start;
  if (!outcome.best) return usage_error("bench.stages", "no plan");
  MOTLEY_ASSIGN(const bench::Restrictions restricted, bench::find_restrictions(question));
  const double step = outcome.best->price.step.value, bound = outcome.lower_bound.value;
  std::string used;
  const std::vector<int> devices = search::used_devices(outcome.best->plan, costs);
  for (std::size_t pool = 0; pool < devices.size(); ++pool)
    used += fmt::format("{}{} {}", pool == 0 ? "" : ", ", devices[pool], costs.pools()[pool].kind);
  fmt::print(
      "LLaMA 1.3B on 2 L4, A6000, P40: {:.3f} s with {}, bound {:.3f} s, published {:.3f} s, "
      "{:.2f} "
      "CPU s\n  restricted, over that:{}\n",
      step, used, bound, kPublished, seconds, restricted.columns(step));
  return Json{{"model", profile.model},
              {"cluster", "2 l4 + a6000 + p40"},
              {"planner", "stages"},
              {"predicted_step_s", step},
              {"best_baseline_s", restricted.best()},
              {"restricted_s", restricted.to_json()},
              {"lower_bound_s", bound},
              {"plan_cpu_s", seconds},
              {"reference_s", kPublished}};
}

/// In each of four zones.
constexpr std::pair<const char*, int> kNodesOfEight[] = {
    {"h100-80g", 8}, {"a100-80g", 8}, {"a100-40g", 12}, {"a10", 12}, {"v100-16g", 12}, {"t4", 12}};

/// Invents 96 layers: half of each kind's nominal rate, less a tenth per doubling of the degree.
Result<cost::LayerProfile> invent_layers() {
  constexpr double kFlops = 6 * 50e6 * 2048;  // per layer and sample
  cost::LayerProfile profile{.model = "invented"};
  for (const auto& [name, nodes] : kNodesOfEight) {
    MOTLEY_ASSIGN(const auto kind, cluster::find_kind(name));
    const double rate = kind.peak.f16->value / 2;
    for (int degree = 1; degree <= 8; degree *= 2)
      for (const std::int64_t micro : {1, 2, 4}) {
        const double pass = kFlops * static_cast<double>(micro) / (rate * std::pow(degree, 0.85));
        profile.times[name][degree][micro].assign(
            96, {Seconds(pass / 3 + 1e-4), Seconds(pass * 2 / 3 + 1e-4), Seconds(1e-3 / degree)});
      }
  }
  for (int degree = 1; degree <= 8; degree *= 2)
    profile.sizes[degree].assign(
        96, {50'000'000, Bytes(200'000'000 / degree), Bytes(800'000'000 / degree),
             Bytes(280'000'000 / degree), Bytes(8'388'608)});
  return profile;
}

/// Runs it on 2,048 devices of six kinds.
Result<Json> run_many() {
  std::string text = "schema = \"motley.cluster/1\"\nname = \"many\"\n", links;
  int node = 0;
  for (int zone = 0; zone < 4; ++zone) {
    links += "[[link]]\nbandwidth = \"100Gbps\"\nlatency = \"20us\"\nbetween = [";
    for (const auto& [kind, nodes] : kNodesOfEight)
      for (int i = 0; i < nodes; ++i, ++node) {
        text += bench::node_text(node, kind, 8, "");
        links += fmt::format("\"n{}\", ", node);
      }
    links += "]\n";
  }
  text += links + "[[link]]\nall = true\nbandwidth = \"10Gbps\"\nlatency = \"2ms\"\n";
  MOTLEY_ASSIGN(const cost::LayerProfile profile, invent_layers());
  constexpr std::int64_t kBatch = 8192;
  const double start = cpu_seconds();
  MOTLEY_ASSIGN(const auto cluster, cluster::parse_cluster(text, "many"));
  MOTLEY_ASSIGN(const search::ClusterPools pools, search::find_pools(cluster));
  MOTLEY_ASSIGN(const auto costs, search::LayerStageCosts::make(
                                      profile, pools.pools, search::cluster_hops(cluster, pools)));
  const search::StageQuestion question{&costs, kBatch};
  MOTLEY_ASSIGN(const search::StageOutcome outcome, search::find_stage_plan(question));
  const double seconds = cpu_seconds() - start;
  if (!outcome.best) return usage_error("bench.stages", "no plan");
  MOTLEY_ASSIGN(const auto uniform, peers::find_restricted(peers::StageSpace::kUniform, question));
  const double best = uniform.best ? uniform.best->price.step.value : INFINITY;
  fmt::print(
      "2,048 devices of 6 kinds in 4 places, 96 layers: {:.3f} s, uniform for each kind {:.3f} s, "
      "bound of rates {:.3f} s, {:.1f} CPU s\n",
      outcome.best->price.step.value, best, outcome.lower_bound.value, seconds);
  return Json{{"model", "invented, 96 layers"},
              {"cluster", "2048 devices, 6 kinds, 4 places"},
              {"planner", "stages"},
              {"predicted_step_s", outcome.best->price.step.value},
              {"best_baseline_s", best},
              {"lower_bound_s", outcome.lower_bound.value},
              {"plan_cpu_s", seconds},
              {"reference_s", nullptr}};
}

int main_of(const std::string& data, const std::string& out, const std::string& part) {
  Json rows = Json::array();
  fmt::print("{:<12} {:<11} {:>8} {:>8} {:>8} {:>7} {:>8} {:>8} {:>6}{}  restricted, over stages\n",
             "model", "A100 + V100", "stages", "program", "bound", "gap", "apart", "reported",
             "CPU s", bench::restriction_heads());
  for (const SailorCase& of : kSailorCases) {
    const std::string name = fmt::format("{} {}+{}", of.model, of.fast, of.slow);
    if (name.find(part) == std::string::npos) continue;
    const auto row = run_sailor(data, of);
    if (!row) {
      fmt::print(stderr, "{}: {}\n", name, row.error().message);
      return 1;
    }
    rows.push_back(*row);
  }
  using Adder = std::function<Result<void>()>;
  const auto add_row = [&](const std::function<Result<Json>()>& run) -> Adder {
    return [&rows, run]() -> Result<void> {
      MOTLEY_ASSIGN(Json row, run());
      rows.push_back(std::move(row));
      return {};
    };
  };
  const std::pair<std::string, Adder> others[] = {
      {"zorse", add_row([&] { return run_zorse(data); })},
      {"harp", [&] { return bench::run_harp(data, rows); }},
      {"zones", [&] { return bench::run_zones(data, rows); }},
      {"2048", add_row(run_many)}};
  for (const auto& [name, add] : others) {
    if (name.find(part) == std::string::npos) continue;
    if (const auto done = add(); !done) {
      fmt::print(stderr, "{}: {}\n", name, done.error().message);
      return 1;
    }
  }
  const auto written = write_file_atomic(out, Json{{"rows", rows}}.dump(1));
  return written ? 0 : 1;
}

}  // namespace
}  // namespace motley

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: bench_stages DATA OUT.json [PART OF A NAME]\n");
    return 2;
  }
  return motley::main_of(argv[1], argv[2], argc > 3 ? argv[3] : "");
}
