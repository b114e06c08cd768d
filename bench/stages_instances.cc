#include "bench/stages_instances.h"

#include <fmt/format.h>

#include <cmath>
#include <random>
#include <utility>

#include "bench/stages_case.h"
#include "motley/cluster/kinds.h"
#include "motley/control/planning/layers.h"
#include "motley/cost/layers/sailor.h"
#include "motley/testing/table_stage_costs.h"
#include "peers/import/csv.h"

namespace motley::bench {
namespace {

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
      text += node_text(node, nodes.kind, 4, nodes.memory);
  return text + "[[link]]\nall = true\nbandwidth = \"50Gbps\"\nlatency = \"20us\"\n";
}

/// Every block is recomputed, as Zorse's formula counts. Its layer times say nothing of
/// activations, embedding, head and update: none are counted.
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

/// In each of four places.
constexpr std::pair<const char*, int> kNodesOfEight[] = {
    {"h100-80g", 8}, {"a100-80g", 8}, {"a100-40g", 12}, {"a10", 12}, {"v100-16g", 12}, {"t4", 12}};

/// 96 layers of an invented model: seconds from each kind's nominal rate, half of it reached, a
/// tenth lost with every doubling of the degree.
Result<cost::LayerProfile> invent_layers() {
  constexpr double kFlops = 6 * 50e6 * 2048;  // a layer and sample
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

/// Devices of A100-40 and V100-16.
struct SmallCase {
  const char* model;
  std::int64_t batch;
  int fast, slow;
};
constexpr int kSmallDrawn = 24, kDrawn = 24;

/// Costs over the links of the cluster.
Result<StageInstance> price_layers(std::string name, const cost::LayerProfile& profile,
                                   const std::string& text, std::int64_t batch) {
  MOTLEY_ASSIGN(const auto cluster, cluster::parse_cluster(text, "bench"));
  MOTLEY_ASSIGN(const search::ClusterPools pools, search::find_pools(cluster));
  MOTLEY_ASSIGN(auto costs, search::LayerStageCosts::make(profile, pools.pools,
                                                          search::cluster_hops(cluster, pools)));
  return StageInstance{std::move(name),
                       std::make_unique<const search::LayerStageCosts>(std::move(costs)), batch};
}

/// Many more devices and layers than random_stage_costs has, in hosts of four.
TableStageCosts draw_large(std::mt19937_64& random) {
  const auto layers = static_cast<std::size_t>(pick_number(random, 8, 20));
  TableStageCosts costs = random_stage_costs(random, layers, 9);
  costs.all_units.clear();
  int host = 0;
  for (std::size_t pool = 0; pool < costs.device_pools.size(); ++pool) {
    search::DevicePool& each = costs.device_pools[pool];
    each.per_host = 4;
    each.devices = 4 * pick_number(random, 2, 6);
    each.memory = Bytes(pick_number(random, 40, 240));
    each.first_host = host;
    host += each.hosts();
    for (const int degree : {1, 2, 4}) costs.all_units.push_back({pool, degree, false});
  }
  // Links are from slow to fast beside passes of some seconds.
  costs.between = 0.5 * static_cast<double>(1 << pick_number(random, 0, 4));
  costs.inside = 8 * costs.between;
  return costs;
}

}  // namespace

Result<StageInstance> make_instance(std::string name, const control::LayerFiles& files,
                                    const std::string& text, std::int64_t batch) {
  MOTLEY_ASSIGN(const auto cluster, cluster::parse_cluster(text, "bench"));
  const control::FindStages nothing = [](const search::StageQuestion&) {
    return Result<search::StageOutcome>();
  };
  MOTLEY_ASSIGN(control::StageAnswer answer,
                control::plan_stages(files, cluster, batch, CpuClock(), nothing));
  return StageInstance{std::move(name), std::move(answer.costs), batch};
}

std::string SailorCase::name() const { return fmt::format("{} {}+{}", model, fast, slow); }

const std::vector<SailorCase>& sailor_cases() {
  static const std::vector<SailorCase> cases = {
      {"OPT-350", 1024, 16, 16, 13.00, 9},      {"OPT-350", 1024, 32, 96, 5.88, 10},
      {"OPT-350", 1024, 80, 240, 2.77, 13},     {"OPT-350", 1024, 128, 384, 1.91, 17},
      {"GPT-Neo-2.7", 2048, 16, 16, 83.3, 0},   {"GPT-Neo-2.7", 2048, 32, 96, 38.1, 0},
      {"GPT-Neo-2.7", 2048, 128, 384, 11.2, 33}};
  return cases;
}

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

std::string sailor_cluster(int fast, int slow) {
  return cluster_text({{"a100-40g", "40376MiB", fast}, {"v100-16g", "16384MiB", slow}});
}

Result<StageInstance> zorse_instance(const std::string& data) {
  MOTLEY_ASSIGN(const cost::LayerProfile profile, read_zorse(data));
  return price_layers("zorse", profile,
                      R"(schema = "motley.cluster/1"
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
                      128);
}

Result<StageInstance> many_instance() {
  std::string text = "schema = \"motley.cluster/1\"\nname = \"many\"\n", links;
  int node = 0;
  for (int zone = 0; zone < 4; ++zone) {
    links += "[[link]]\nbandwidth = \"100Gbps\"\nlatency = \"20us\"\nbetween = [";
    for (const auto& [kind, nodes] : kNodesOfEight)
      for (int i = 0; i < nodes; ++i, ++node) {
        text += node_text(node, kind, 8, "");
        links += fmt::format("\"n{}\", ", node);
      }
    links += "]\n";
  }
  text += links + "[[link]]\nall = true\nbandwidth = \"10Gbps\"\nlatency = \"2ms\"\n";
  MOTLEY_ASSIGN(const cost::LayerProfile profile, invent_layers());
  return price_layers("2048", profile, text, 8192);
}

Result<std::vector<StageInstance>> small_instances(const std::string& data) {
  std::vector<StageInstance> all;
  for (const auto& [model, batch, fast, slow] :
       std::initializer_list<SmallCase>{{"OPT-350", 64, 4, 4},
                                        {"OPT-350", 16, 4, 4},
                                        {"OPT-350", 256, 0, 8},
                                        {"GPT-Neo-2.7", 64, 4, 4},
                                        {"GPT-Neo-2.7", 16, 4, 4},
                                        {"GPT-Neo-2.7", 128, 8, 0},
                                        {"OPT-350", 8, 4, 0},
                                        {"OPT-350", 100, 0, 4}}) {
    MOTLEY_ASSIGN(StageInstance made,
                  make_instance(fmt::format("{} {}+{}, {}", model, fast, slow, batch),
                                sailor_files(data, model), sailor_cluster(fast, slow), batch));
    all.push_back(std::move(made));
  }
  std::mt19937_64 random(41);
  for (int i = 0; i < kSmallDrawn; ++i) {
    const auto layers = static_cast<std::size_t>(pick_number(random, 4, 9));
    const std::int64_t batch = pick_number(random, 4, 32);
    TableStageCosts costs =
        i % 3 == 2 ? random_mixed_costs(random, layers, 8) : random_stage_costs(random, layers, 8);
    all.push_back({fmt::format("small {}", i),
                   std::make_unique<const TableStageCosts>(std::move(costs)), batch});
  }
  return all;
}

std::vector<StageInstance> drawn_instances() {
  std::vector<StageInstance> all;
  std::mt19937_64 random(43);
  for (int i = 0; i < kDrawn; ++i) {
    TableStageCosts costs = draw_large(random);
    const std::int64_t batch = 32 << pick_number(random, 0, 3);
    all.push_back({fmt::format("drawn {}", i),
                   std::make_unique<const TableStageCosts>(std::move(costs)), batch});
  }
  return all;
}

}  // namespace motley::bench
