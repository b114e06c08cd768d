// Runs the released HAP beside the original's published costs and planning times, then the
// described HAP on the same clusters. Usage: bench_hap OUT.json; prints two tables.
#include "peers/hap/hap.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <vector>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "peers/hap/program_summary.h"
#include "peers/hap/published_models.h"

namespace motley {
namespace {

using peers::HapCluster, peers::HapOptions, peers::HapPlan, peers::ReferenceGraph;

/// Seconds of the original's step and planning, on one V100 to three P100 or equal devices.
struct Instance {
  std::string model;
  std::int64_t layers, devices;
  bool is_mixed;
  double bytes_per_element;
  double published_cost;
  std::string published_seconds;
};

std::vector<Instance> make_instances() {
  struct Row {
    std::string model;
    std::int64_t layers, devices;
    double cost, repaired_cost;
    std::string seconds;
  };
  const std::vector<Row> mixed = {{"BERT", 12, 8, 1.456731, 2.182955, "4.4-13"},
                                  {"BERT", 12, 16, 1.466775, 2.223132, "12"},
                                  {"BERT", 12, 32, 1.486864, 2.303486, "11"},
                                  {"BERT", 12, 64, 1.500295, 2.357211, "13"},
                                  {"ViT", 12, 8, 0.599989, 1.135233, "7-10"},
                                  {"ViT", 12, 16, 0.599989, 1.135233, "7-10"},
                                  {"ViT", 12, 32, 0.599989, 1.135233, "7-10"},
                                  {"ViT", 12, 64, 0.599989, 1.135233, "7-10"},
                                  {"VGG19", 19, 8, 0.051911, 0.135571, "0.3"},
                                  {"VGG19", 19, 16, 0.060419, 0.175501, "0.4"},
                                  {"VGG19", 19, 32, 0.076457, 0.239577, "0.7"},
                                  {"VGG19", 19, 64, 0.088818, 0.288803, "1.2"},
                                  {"BERT-MoE", 12, 8, 2.348844, 3.758188, "25-40"},
                                  {"BERT-MoE", 12, 16, 2.660369, 4.590458, "31-43"},
                                  {"BERT-MoE", 12, 32, 3.240386, 6.254996, "45-52"},
                                  {"BERT-MoE", 12, 64, 4.647613, 11.124679, "45-55"}};
  std::vector<Instance> all;
  for (const Row& row : mixed) {
    all.push_back({row.model, row.layers, row.devices, true, 1, row.cost, row.seconds});
    all.push_back({row.model, row.layers, row.devices, true, 4, row.repaired_cost, row.seconds});
  }
  for (const Instance& equal : std::vector<Instance>{{"BERT", 2, 8, false, 1, 0.228772, "0.27"},
                                                     {"BERT", 4, 8, false, 1, 0.292080, "0.65"},
                                                     {"BERT", 8, 8, false, 1, 0.418697, "2.2"},
                                                     {"BERT", 12, 8, false, 1, 0.545313, "4.5"},
                                                     {"ViT", 2, 8, false, 1, 0.032846, "0.11"},
                                                     {"ViT", 4, 8, false, 1, 0.065568, "0.38"},
                                                     {"ViT", 8, 8, false, 1, 0.131011, "1.5"},
                                                     {"ViT", 12, 8, false, 1, 0.196454, "3.4"}})
    all.push_back(equal);
  all.push_back({"BERT", 24, 8, true, 1, 2.481325, "36"});
  return all;
}

ReferenceGraph make_model(const Instance& instance) {
  if (instance.model == "BERT") return peers::make_bert(instance.devices, instance.layers);
  if (instance.model == "ViT") return peers::make_vit(instance.devices, instance.layers);
  if (instance.model == "VGG19") return peers::make_vgg19(instance.devices);
  return peers::make_bert_moe(instance.devices, instance.layers);
}

HapCluster make_cluster(const Instance& instance) {
  return instance.is_mixed ? peers::make_v100_p100_cluster(instance.devices)
                           : peers::make_default_cluster(instance.devices);
}

/// Returns processor time of this thread, which other load does not lengthen.
double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

Result<Json> measure(const Instance& instance) {
  const ReferenceGraph graph = make_model(instance);
  const HapCluster cluster = make_cluster(instance);
  HapOptions options;
  options.cost.bytes_per_element = instance.bytes_per_element;
  HapPlan plan;
  std::vector<double> seconds;
  for (int run = 0; run < 9; ++run) {
    const double begin = processor_seconds();
    MOTLEY_ASSIGN(plan, peers::make_hap_plan(graph, cluster, options));
    seconds.push_back(processor_seconds() - begin);
  }
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2];
  const double skew = plan.shares.front() * static_cast<double>(instance.devices);
  fmt::print("{:<9}{:>7}{:>8}{:>7}{:>6}{:>11.6f}{:>11.6f}{:>10.5f}{:>10}{:>8}{:>9}{:>7.3f}\n",
             instance.model, instance.layers, instance.devices,
             instance.is_mixed ? "mixed" : "equal", instance.bytes_per_element,
             plan.program.seconds, instance.published_cost, median, instance.published_seconds,
             plan.program.expansions, plan.searches, skew);
  return Json{{"options", "released"},
              {"model", instance.model},
              {"layers", instance.layers},
              {"devices", instance.devices},
              {"is_mixed", instance.is_mixed},
              {"bytes_per_element", instance.bytes_per_element},
              {"cost_s", plan.program.seconds},
              {"published_cost_s", instance.published_cost},
              {"plan_s", median},
              {"published_plan_s", instance.published_seconds},
              {"expansions", plan.program.expansions},
              {"searches", plan.searches},
              {"largest_share_over_even", skew},
              {"plan", peers::summarize(plan.program, graph)}};
}

/// Prices data parallelism at even and proportional shares, and HAP as described; repaired units.
Result<Json> compare(const Instance& instance) {
  const ReferenceGraph graph = make_model(instance);
  const HapCluster cluster = make_cluster(instance);
  const HapOptions options = peers::hap_as_described();
  MOTLEY_ASSIGN(const HapPlan plan, peers::make_hap_plan(graph, cluster, options));
  MOTLEY_ASSIGN(const auto rules, peers::make_rules(graph, options.rules));
  const auto data_parallel = [&](const peers::Shares& shares) {
    return peers::data_parallel_seconds(graph, rules,
                                        peers::HapCost(cluster, options.cost, shares));
  };
  const auto devices = static_cast<std::size_t>(instance.devices);
  const double even = data_parallel(peers::Shares(devices, 1.0 / static_cast<double>(devices)));
  const double proportional = data_parallel(peers::proportional_shares(cluster));
  fmt::print("{:<9}{:>7}{:>8}{:>11.4f}{:>13.4f}{:>11.4f}\n", instance.model, instance.layers,
             instance.devices, even, proportional, plan.program.seconds);
  return Json{{"options", "described"},
              {"model", instance.model},
              {"layers", instance.layers},
              {"devices", instance.devices},
              {"even_s", even},
              {"proportional_s", proportional},
              {"described_s", plan.program.seconds},
              {"plan", peers::summarize(plan.program, graph)}};
}

Result<void> run(const std::string& path) {
  Json rows = Json::array();
  fmt::print("{:<9}{:>7}{:>8}{:>7}{:>6}{:>11}{:>11}{:>10}{:>10}{:>8}{:>9}{:>7}\n", "released",
             "layers", "devices", "", "bytes", "cost s", "published", "plan s", "published",
             "states", "searches", "skew");
  for (const Instance& instance : make_instances()) {
    MOTLEY_ASSIGN(Json row, measure(instance));
    rows.push_back(std::move(row));
  }
  fmt::print("\n{:<9}{:>7}{:>8}{:>11}{:>13}{:>11}\n", "described", "layers", "devices", "even s",
             "proportional", "HAP s");
  for (const Instance& instance : make_instances()) {
    if (instance.bytes_per_element == 1) continue;
    MOTLEY_ASSIGN(Json row, compare(instance));
    rows.push_back(std::move(row));
  }
  return write_file_atomic(path, Json{{"rows", rows}}.dump(2) + "\n");
}

}  // namespace
}  // namespace motley

int main(int count, char** arguments) {
  if (count != 2) {
    fmt::print(stderr, "usage: bench_hap OUT.json\n");
    return 2;
  }
  if (const auto done = motley::run(arguments[1]); !done) {
    fmt::print(stderr, "{}\n", done.error().message);
    return 1;
  }
  return 0;
}
