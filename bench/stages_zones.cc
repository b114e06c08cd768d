#include "bench/stages_zones.h"

#include <fmt/format.h>

#include <random>

#include "bench/stages_case.h"

namespace motley::bench {
namespace {

constexpr int kClusters = 12;

/// A cluster whose zones have hosts of four A100-40 and of four V100-16.
struct ZonedCluster {
  std::string text, name;
};

ZonedCluster draw_cluster(std::mt19937_64& random) {
  const auto pick = [&](int least, int most) {
    return least + static_cast<int>(random() % static_cast<std::uint64_t>(most - least + 1));
  };
  const int zones = pick(2, 3), inside = 25 << pick(0, 2), between = 5 * pick(1, 2);
  const int most = pick(0, 1) == 0 ? 2 : 16;  // hosts of a kind
  ZonedCluster made{"schema = \"motley.cluster/1\"\nname = \"zones\"\n", ""};
  std::string links;
  int node = 0;
  for (int zone = 0; zone < zones; ++zone) {
    const int fast = pick(1, most), slow = pick(1, most);
    made.name += fmt::format("{}{}+{}", zone == 0 ? "" : " | ", 4 * fast, 4 * slow);
    links +=
        fmt::format("[[link]]\nbandwidth = \"{}Gbps\"\nlatency = \"20us\"\nbetween = [", inside);
    for (int i = 0; i < fast + slow; ++i, ++node) {
      const bool is_fast = i < fast;
      made.text +=
          node_text(node, is_fast ? "a100-40g" : "v100-16g", 4, is_fast ? "40376MiB" : "16384MiB");
      links += fmt::format("\"n{}\", ", node);
    }
    links += "]\n";
  }
  made.text += links + fmt::format(
                           "[[link]]\nall = true\nbandwidth = \"{}Gbps\"\nlatency = "
                           "\"1ms\"\n",
                           between);
  made.name += fmt::format(", {} and {} Gbit/s", inside, between);
  return made;
}

}  // namespace

std::vector<ZonedCase> zoned_cases(const std::string& data) {
  std::vector<ZonedCase> all;
  std::mt19937_64 random(20);
  for (int i = 0; i < kClusters; ++i) {
    ZonedCluster cluster = draw_cluster(random);
    control::LayerFiles files;
    files.model = i % 2 == 0 ? "OPT-350" : "GPT-Neo-2.7";
    const std::string profiles = data + "/sailor/profiles/" + files.model;
    files.times = {"a100-40g=" + profiles + "/A100-40/profile.json",
                   "v100-16g=" + profiles + "/V100-16/profile.json"};
    files.sizes = data + "/sailor/llm_info.json";
    all.push_back({std::move(files), std::move(cluster.text), std::move(cluster.name), 512});
  }
  return all;
}

Result<void> run_zones(const std::string& data, Json& rows) {
  for (const auto& [files, text, name, batch] : zoned_cases(data)) {
    MOTLEY_ASSIGN(const PlannedCase planned, plan_case(files, text, batch));
    const double step = planned.outcome.best->price.step.value;
    fmt::print("{:<12} {:<40} {:>8.3f} {:>8.3f} {:>8.3f} {:>6.2f}{}\n", files.model, name, step,
               planned.program.value, planned.outcome.lower_bound.value, planned.cpu_seconds,
               planned.restricted.columns(step));
    std::fflush(stdout);
    rows.push_back({{"model", files.model},
                    {"cluster", name},
                    {"planner", "stages"},
                    {"predicted_step_s", step},
                    {"program_step_s", planned.program.value},
                    {"best_baseline_s", planned.restricted.best()},
                    {"restricted_s", planned.restricted.to_json()},
                    {"lower_bound_s", planned.outcome.lower_bound.value},
                    {"plan_cpu_s", planned.cpu_seconds},
                    {"reference_s", nullptr}});
  }
  return {};
}

}  // namespace motley::bench
