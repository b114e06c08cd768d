// Plans of stages, replicas and micro-batches over unequal devices, beside plans of narrower spaces
// and what other planners reported.
// Usage: bench_stages DATA OUT.json [PART OF A NAME]; DATA holds sailor and zorse. Prints one
// table; a row an instance. Planning time counts what `motley plan --planner stages` does: reading
// files and clusters, too.
#include <fmt/format.h>
#include <time.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/control/layers.h"
#include "motley/cost/layers/sailor.h"
#include "peers/stages/restricted.h"

namespace motley {
namespace {

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct CpuClock : control::Clock {
  Seconds steady() const override { return Seconds(cpu_seconds()); }
  Seconds calendar() const override { return Seconds(0); }
};

/// Nodes of four devices each.
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
      text += fmt::format(
          "[[node]]\nname = \"n{}\"\nhost = \"10.0.{}.{}\"\n[[node.device]]\nkind = \"{}\"\ncount "
          "= "
          "4\nmemory = \"{}\"\n",
          node, node / 250, node % 250 + 1, nodes.kind, nodes.memory);
  return text + "[[link]]\nall = true\nbandwidth = \"50Gbps\"\nlatency = \"20us\"\n";
}

/// A row of Sailor's evaluation (facts of its planner's release): its step and planning time.
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
  const double start = cpu_seconds();
  MOTLEY_ASSIGN(const auto cluster, cluster::parse_cluster(text, "bench"));
  MOTLEY_ASSIGN(const control::StageAnswer answer,
                control::plan_stages(sailor_files(data, of.model), cluster, of.batch, CpuClock()));
  const double seconds = cpu_seconds() - start;
  if (!answer.outcome.best) return usage_error("bench.stages", "no plan");
  const double step = answer.outcome.best->price.step.value;
  const search::StageQuestion question{answer.costs.get(), of.batch};
  std::vector<double> restricted;
  for (const peers::StageSpace space : {peers::StageSpace::kEqual, peers::StageSpace::kSailor}) {
    MOTLEY_ASSIGN(const auto plan, peers::find_restricted(space, question));
    restricted.push_back(plan ? plan->price.step.value : INFINITY);
  }
  const double best = std::min(restricted[0], restricted[1]);
  fmt::print(
      "{:<12} {:>4} + {:<4} {:>8.3f} {:>8.3f} {:>8.3f} {:>8.3f} {:>5.1f} % {:>8.2f} {:>6.2f}\n",
      of.model, of.fast, of.slow, restricted[0], restricted[1], step,
      answer.outcome.lower_bound.value, 100 * answer.outcome.gap(), of.step_s, seconds);
  std::fflush(stdout);
  return Json{{"model", of.model},
              {"cluster", fmt::format("{} a100-40g + {} v100-16g", of.fast, of.slow)},
              {"planner", "stages"},
              {"predicted_step_s", step},
              {"best_baseline_s", best},
              {"equal_s", restricted[0]},
              {"sailor_space_s", restricted[1]},
              {"lower_bound_s", answer.outcome.lower_bound.value},
              {"plan_cpu_s", seconds},
              {"reference_s", of.step_s},
              {"reference_cpu_s", of.cpu_s > 0 ? Json(of.cpu_s) : Json(nullptr)}};
}

int main_of(const std::string& data, const std::string& out, const std::string& part) {
  Json rows = Json::array();
  fmt::print("{:<12} {:<11} {:>8} {:>8} {:>8} {:>8} {:>7} {:>8} {:>6}\n", "model", "A100 + V100",
             "equal", "sailor's", "stages", "bound", "gap", "reported", "CPU s");
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
