#include "peers/hap/hap.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "motley/base/random.h"
#include "motley/search/spmd/balance.h"
#include "peers/hap/program_summary.h"
#include "peers/hap/published_models.h"
#include "peers/import/csv.h"

namespace motley::peers {
namespace {

/// The released planner's results on one V100 to three P100; times in seconds.
struct Instance {
  std::string model;
  std::int64_t devices;
  double divisor;  // of all bandwidths
  double hap, data_parallel;
};

/// Replaces the published tables where MOTLEY_DATA lacks them.
std::vector<Instance> built_in_instances() {
  return {{"BERT-12", 8, 1, 1.456731, 1.5006},      {"BERT-12", 8, 4, 2.182955, 2.3583},
          {"BERT-12", 64, 1, 1.500295, 1.5006},     {"BERT-12", 64, 4, 2.357211, 2.3583},
          {"ViT-12", 8, 1, 0.599989, 0.6002},       {"ViT-12", 64, 4, 1.135233, 1.1360},
          {"VGG19", 8, 1, 0.051911, 0.3112},        {"VGG19", 8, 4, 0.135571, 1.1897},
          {"VGG19", 16, 1, 0.060419, 0.3112},       {"VGG19", 16, 4, 0.175501, 1.1897},
          {"VGG19", 64, 1, 0.088818, 0.3112},       {"VGG19", 64, 4, 0.288803, 1.1897},
          {"BERT-MoE-12", 8, 1, 2.348844, 3.0415},  {"BERT-MoE-12", 8, 4, 3.758188, 6.5717},
          {"BERT-MoE-12", 64, 1, 4.647613, 9.9044}, {"BERT-MoE-12", 64, 4, 11.124679, 33.3900}};
}

struct Depth {
  std::string model;
  std::int64_t layers;
  bool is_heterogeneous;
  double hap;
};

std::vector<Depth> built_in_depths() {
  return {{"BERT", 2, false, 0.228772},
          {"BERT", 12, false, 0.545313},
          {"ViT", 2, false, 0.032846},
          {"ViT", 12, false, 0.196454},
          {"BERT", 24, true, 2.481325}};
}

/// Reads a published table; none, with a note, where the file is absent.
std::optional<CsvTable> published(const std::string& name) {
  const char* root = std::getenv("MOTLEY_DATA");
  const std::string path = std::string(root == nullptr ? "" : root) + "/published/hap/" + name;
  if (root == nullptr || !std::filesystem::exists(path)) {
    fmt::print("no {} below MOTLEY_DATA: checks the values in the test only\n", name);
    return {};
  }
  return CsvTable::read(path).value();
}

std::vector<Instance> instances() {
  const auto table = published("planner_instances.csv");
  if (!table) return built_in_instances();
  const std::size_t model = table->column("model").value(),
                    devices = table->column("devices").value(),
                    divisor = table->column("bandwidth_divisor").value(),
                    hap = table->column("hap_s").value(), dp = table->column("dp_cp_s").value();
  std::vector<Instance> rows;
  for (std::size_t i = 0; i < table->rows(); ++i)
    rows.push_back({table->text(i, model), table->integer(i, devices).value(),
                    table->number(i, divisor).value(), table->number(i, hap).value(),
                    table->number(i, dp).value()});
  return rows;
}

std::vector<Depth> depths() {
  const auto table = published("depth_sweep.csv");
  if (!table) return built_in_depths();
  const std::size_t model = table->column("model").value(),
                    layers = table->column("layers").value(),
                    bandwidths = table->column("bandwidths").value(),
                    hap = table->column("hap_s").value();
  std::vector<Depth> rows;
  for (std::size_t i = 0; i < table->rows(); ++i)
    rows.push_back({table->text(i, model), table->integer(i, layers).value(),
                    table->text(i, bandwidths) == "8 machines", table->number(i, hap).value()});
  return rows;
}

ReferenceGraph make_model(const std::string& name, std::int64_t devices) {
  if (name == "BERT-12") return make_bert(devices);
  if (name == "ViT-12") return make_vit(devices);
  if (name == "VGG19") return make_vgg19(devices);
  EXPECT_EQ(name, "BERT-MoE-12");
  return make_bert_moe(devices);
}

HapOptions released(double divisor) {
  HapOptions options;
  options.cost.bytes_per_element = divisor;
  return options;
}

HapPlan plan_of(const std::string& model, std::int64_t devices, double divisor = 1) {
  auto plan =
      make_hap_plan(make_model(model, devices), make_v100_p100_cluster(devices), released(divisor));
  EXPECT_TRUE(plan) << plan.error().message;
  return *std::move(plan);
}

std::string summary_of(const std::string& model, std::int64_t devices, double divisor = 1) {
  return summarize(plan_of(model, devices, divisor).program, make_model(model, devices));
}

/// Returns the largest share over the even one: 1 when even, 1.4975994 when proportional.
double skew(const Shares& shares) { return shares.front() * static_cast<double>(shares.size()); }
constexpr double kProportional = 1.4975994358604363;

TEST(Hap, FindsTheReleasedCostOfEveryPublishedInstance) {
  for (const Instance& row : instances()) {
    SCOPED_TRACE(fmt::format("{} on {} devices, divisor {}", row.model, row.devices, row.divisor));
    const HapPlan plan = plan_of(row.model, row.devices, row.divisor);
    EXPECT_NEAR(plan.program.seconds, row.hap, 0.5001e-6);
    const ReferenceGraph graph = make_model(row.model, row.devices);
    const HapCluster cluster = make_v100_p100_cluster(row.devices);
    const HapCost cost(cluster, released(row.divisor).cost, proportional_shares(cluster));
    EXPECT_NEAR(data_parallel_seconds(graph, make_rules(graph).value(), cost), row.data_parallel,
                0.5001e-4);
  }
}

TEST(Hap, FindsTheReleasedCostAtEveryDepth) {
  for (const Depth& row : depths()) {
    SCOPED_TRACE(fmt::format("{} of {} layers", row.model, row.layers));
    const ReferenceGraph graph =
        row.model == "BERT" ? make_bert(8, row.layers) : make_vit(8, row.layers);
    const auto plan = make_hap_plan(
        graph, row.is_heterogeneous ? make_v100_p100_cluster(8) : make_default_cluster(8));
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_NEAR(plan->program.seconds, row.hap, 0.5001e-6);
  }
}

TEST(Hap, SplitsTheEmbeddingWhereThatPays) {
  // 33,280 * 7504501871 > 2 * 32 n * 128 * 1.4976 * 476774816 up to n = 42.
  for (const std::int64_t devices : {8, 16, 32})
    EXPECT_EQ(summary_of("BERT-12", devices),
              "embedding.weight gather(1); positions gather(0); all-to-all embedding.*");
  // The position table "split" on its dimension of length 1: the released fault.
  EXPECT_EQ(summary_of("BERT-12", 64), "positions gather(0)");
  EXPECT_EQ(summary_of("ViT-12", 8), "positions gather(0)");
  EXPECT_NEAR(skew(plan_of("BERT-12", 8).shares), kProportional, 1e-12);
  EXPECT_NEAR(skew(plan_of("ViT-12", 64, 4).shares), kProportional, 1e-12);
}

TEST(Hap, SplitsWideLayersOfVgg) {
  const std::string classifier = "2 x fc*.bias gather(0); 2 x fc*.weight gather(0); ";
  EXPECT_EQ(summary_of("VGG19", 32),
            classifier + "all-gather linear.*; all-gather max_pool*d.*; all-to-all linear.*");
  EXPECT_EQ(summary_of("VGG19", 16, 4),
            "4 x conv*.bias gather(0); 4 x conv*.weight gather(0); " + classifier +
                "3 x all-gather conv*d.*; all-gather linear.*; 2 x all-gather max_pool*d.*; "
                "all-to-all linear.*");
  EXPECT_EQ(summary_of("VGG19", 8),
            "7 x conv*.bias gather(0); 7 x conv*.weight gather(0); " + classifier +
                "5 x all-gather conv*d.*; all-gather linear.*; 3 x all-gather max_pool*d.*; "
                "all-to-all linear.*");
  for (const std::int64_t devices : {8, 16, 32, 64}) {
    const HapPlan plan = plan_of("VGG19", devices);
    EXPECT_NEAR(skew(plan.shares), 1, 1e-12);
    EXPECT_EQ(plan.searches, 2);  // proportional, then even; a third would repeat the second
  }
}

TEST(Hap, ComputesOneConvolutionOfVggOnEveryDevice) {
  const ReferenceGraph graph = make_vgg19(8);
  const auto rules = make_rules(graph).value();
  const HapPlan plan = plan_of("VGG19", 8);
  std::vector<int> whole;
  int convolution = 0;
  for (const SpmdStep& step : plan.program.steps) {
    if (graph.operators[step.op].kind != "conv2d") continue;
    ++convolution;
    if (rules[step.op].triples[step.triple].shared_flops == 0) whole.push_back(convolution);
  }
  EXPECT_EQ(whole, (std::vector<int>{9}));
}

TEST(Hap, KeepsExpertsApart) {
  const std::string experts =
      "6 x layer*.experts.first gather(0); 6 x layer*.experts.second gather(0); positions "
      "gather(0); 6 x all-to-all bsd,bsec->becd.*; 6 x all-to-all ehd,bech->becd.*";
  EXPECT_EQ(summary_of("BERT-MoE-12", 64), experts);
  EXPECT_EQ(summary_of("BERT-MoE-12", 8),
            "embedding.weight gather(1); " + experts + "; all-to-all embedding.*");
  EXPECT_NEAR(skew(plan_of("BERT-MoE-12", 16).shares), kProportional, 1e-12);
  EXPECT_NEAR(skew(plan_of("BERT-MoE-12", 32).shares), 1, 1e-12);
  EXPECT_NEAR(skew(plan_of("BERT-MoE-12", 8, 4).shares), 1, 1e-12);
}

/// The constants of one instance's closed forms.
struct Constants {
  double least, most, sum, devices, samples, gather, reduce, all_to_all;

  Constants(std::int64_t count, double divisor) {
    const HapCluster cluster = make_v100_p100_cluster(count);
    most = cluster.device_flops.front();
    least = cluster.device_flops.back();
    devices = static_cast<double>(count);
    sum = devices * (most + 3 * least) / 4;
    samples = 32 * devices;
    const CollectiveRates& rates = cluster.bytes_per_second;
    gather = divisor / rates.all_gather + divisor / rates.reduce_scatter;  // and its dual
    reduce = divisor / rates.all_reduce;
    all_to_all = divisor / rates.all_to_all;
  }
};

constexpr double kWidth = 768, kTokens = 128, kVocabulary = 33280;

/// Data parallel, without what the rules leave out; with the embedding split if that is better.
double closed_form_of_bert(const Constants& k, double flops, double charged, bool is_even) {
  const double padding = is_even ? 1 : k.devices * k.most / k.sum;
  const double compute = is_even ? flops / (k.devices * k.least) : flops / k.sum;
  const double embedding =
      -kVocabulary * kWidth * k.reduce + 2 * k.samples * kTokens * kWidth * padding * k.all_to_all +
      3 * k.samples * kTokens * (is_even ? (1 - 1 / k.devices) / k.least : 1 / k.least - 1 / k.sum);
  return compute + charged * k.reduce + std::min(0.0, embedding);
}

TEST(Hap, EqualsTheClosedFormsOfTransformers) {
  for (const std::int64_t devices : {8, 16, 32, 64}) {
    for (const double divisor : {1.0, 4.0}) {
      SCOPED_TRACE(fmt::format("{} devices, divisor {}", devices, divisor));
      const Constants k(devices, divisor);
      // All elements except the norms of 12 layers (4 D each) and the position table.
      const double bert = 136320512 - 12 * 4 * kWidth - kTokens * kWidth;
      EXPECT_NEAR(plan_of("BERT-12", devices, divisor).program.seconds,
                  closed_form_of_bert(k, 3129716256768 * k.devices, bert, false), 1e-12);
      const double vit = 85150474 - 12 * 4 * kWidth - 65 * kWidth;
      EXPECT_NEAR(plan_of("ViT-12", devices, divisor).program.seconds,
                  1086238405248 * k.devices / k.sum + vit * k.reduce, 1e-12);
    }
  }
}

TEST(Hap, EqualsTheClosedFormOfExperts) {
  for (const std::int64_t devices : {8, 16, 32, 64}) {
    for (const double divisor : {1.0, 4.0}) {
      SCOPED_TRACE(fmt::format("{} devices, divisor {}", devices, divisor));
      const Constants k(devices, divisor);
      const ReferenceGraph graph = make_bert_moe(devices);
      const double experts = 2 * k.devices, hidden = 3072;
      const double capacity = devices == 8 ? 20 : devices == 16 ? 10 : devices == 32 ? 5 : 3;
      const double flops = (devices == 64 ? 5348605833216 : 4804684296192) * k.devices;
      const double charged = parameter_elements(graph) - 12 * 4 * kWidth - kTokens * kWidth -
                             12 * experts * kWidth * hidden;
      const bool is_even = divisor == 4 || devices > 16;
      const double padding = is_even ? 1 : k.devices * k.most / k.sum;
      const double exchange = 24 * experts * k.samples * capacity * kWidth * padding * k.all_to_all;
      EXPECT_NEAR(plan_of("BERT-MoE-12", devices, divisor).program.seconds,
                  closed_form_of_bert(k, flops, charged, is_even) + exchange, 1e-11);
    }
  }
}

/// VGG19 at even shares: fully connected layers split (A), also convolutions 13-16, 10-12.
double closed_form_of_vgg(const Constants& k) {
  const double rest = (1 - 1 / k.devices) / k.least;
  const double a = 47309405184 / k.least + (20024384 + 40970) * k.reduce +
                   4608 * k.samples * k.gather + 8192 * k.samples * k.all_to_all +
                   3 * (1536 + 25088 + 24576) * k.samples * rest;
  const double k4 =
      a - 4 * 2359808 * k.reduce + 4 * 2048 * k.samples * k.gather + 27 * 2048 * k.samples * rest;
  const double k7 = k4 - 3 * 2359808 * k.reduce + (4096 + 2 * 8192) * k.samples * k.gather +
                    (9.0 * 512 * 4096 + 27 * 8192) * k.samples * rest;
  return std::min({a, k4, k7});
}

TEST(Hap, EqualsTheClosedFormsOfVgg) {
  for (const std::int64_t devices : {8, 16, 32, 64})
    for (const double divisor : {1.0, 4.0})
      EXPECT_NEAR(plan_of("VGG19", devices, divisor).program.seconds,
                  closed_form_of_vgg(Constants(devices, divisor)), 1e-12)
          << devices << " devices, divisor " << divisor;
}

TEST(Hap, TakesDeviceCountsThatDoNotDivideTheExperts) {
  // 29 devices, 58 experts over shards of 2.77 to 1.54 in the continuous cost.
  HapCluster cluster = make_v100_p100_cluster(29);
  const auto plan = make_hap_plan(make_bert_moe(29), cluster, released(4));
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_NE(summarize(plan->program, make_bert_moe(29)).find("experts.first gather(0)"),
            std::string::npos);
}

TEST(Hap, NeitherAnotherProgramNorOtherSharesAloneAreBetter) {
  SplitMix64 random(1);
  const ReferenceGraph graph = make_vgg19(4);
  const auto rules = make_rules(graph).value();
  bool searched_again = false;
  for (int round = 0; round < 100; ++round) {
    HapCluster cluster = make_v100_p100_cluster(4);
    for (double& speed : cluster.device_flops) speed *= 0.01 + random.uniform();
    const auto plan = make_hap_plan(graph, cluster);
    ASSERT_TRUE(plan) << plan.error().message;
    const LinearTime& time = plan->program.time;
    EXPECT_EQ(time.seconds(effect_of(plan->shares, cluster)), plan->program.seconds);
    const Shares best = search::balance(cluster.device_flops, time.shared_flops, time.padded_s);
    EXPECT_NEAR(time.seconds(effect_of(best, cluster)), plan->program.seconds, 1e-15);
    const auto again = find_program(graph, rules, HapCost(cluster, {}, plan->shares));
    EXPECT_EQ(again->seconds, plan->program.seconds);
    const auto first =
        find_program(graph, rules, HapCost(cluster, {}, proportional_shares(cluster)));
    EXPECT_LE(plan->program.seconds, first->seconds);
    searched_again = searched_again || plan->program.seconds < first->seconds;
    EXPECT_LE(plan->searches, 3);
  }
  EXPECT_TRUE(searched_again);
}

TEST(Hap, AsDescribedKeepsTheResult) {
  // Sound rules sum the position table, or split it on its width, and charge layer norms. On BERT
  // neither sufficient factors nor grouped collectives pay.
  const HapCluster cluster = make_v100_p100_cluster(64);
  const ReferenceGraph graph = make_bert(64);
  const auto plan = make_hap_plan(graph, cluster, hap_as_described());
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(summarize(plan->program, graph), "pure data parallel");
  EXPECT_NEAR(plan->program.seconds,
              3129716256768.0 * 64 / (16 * 3858755112937.0 + 48 * 2149250936815.0) +
                  4 * 136320512.0 / 476774816,
              1e-12);
}

TEST(Hap, RefusesClustersWithoutRates) {
  HapCluster cluster = make_default_cluster(2);
  cluster.device_flops[1] = 0;
  auto plan = make_hap_plan(make_vgg19(2), cluster);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, "search.hap-cluster");
  EXPECT_EQ(plan.error().message, "device 1: 0 flops a second, wanted a positive number");

  cluster = make_default_cluster(2);
  cluster.bytes_per_second.grouped_reduce_scatter = 0;
  EXPECT_TRUE(make_hap_plan(make_vgg19(2), cluster));
  plan = make_hap_plan(make_vgg19(2), cluster, hap_as_described());
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().message,
            "grouped_reduce_scatter: 0 bytes a second, wanted a positive number");

  plan = make_hap_plan(make_vgg19(2), HapCluster{});
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().message, "no device");
}

}  // namespace
}  // namespace motley::peers
