#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "motley/base/text.h"
#include "motley/cluster/cluster.h"
#include "motley/cost/measured/profile_store.h"
#include "motley/graph/model_file.h"
#include "motley/search/price/costs.h"
#include "motley/testing/verb_calls.h"

namespace motley::cli {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::SizeIs;
using ::testing::StartsWith;

// Three machines emulated on one; `keys` replace the first one's speed.
std::string emulated_text(const std::string& keys = "speed = 0.8") {
  std::string text = "schema = \"motley.cluster/1\"\nname = \"three\"\n";
  for (const auto& [node, of_device] :
       {std::pair("a", keys), {"b", "speed = 0.4"}, {"c", "speed = 0.2"}})
    text += fmt::format("[[node]]\nname = \"{}\"\n  [[node.device]]\n  kind = \"cpu\"\n  {}\n",
                        node, of_device);
  return text;
}

std::string rented_text(const std::string& bandwidth = "10Gbps") {
  return "schema = \"motley.cluster/1\"\nname = \"rented\"\n"
         "[[node]]\nname = \"a\"\n  [[node.device]]\n  kind = \"rtx4090\"\n"
         "[[node]]\nname = \"b\"\n  [[node.device]]\n  kind = \"t4\"\n"
         "[[link]]\nall = true\nbandwidth = \"" +
         bandwidth + "\"\nlatency = \"50us\"\n";
}

std::int64_t sum(const Json& object) {
  std::int64_t total = 0;
  for (const auto& [key, value] : object.items()) total += value.get<std::int64_t>();
  return total;
}

void expect_prediction(const Json& answer) {
  const double step = answer.at("predicted_step_s");
  EXPECT_LT(answer.at("predicted_step_interval_s").at(0), step);
  EXPECT_GT(answer.at("predicted_step_interval_s").at(1), step);
  EXPECT_NE(answer.at("interval_basis"), "");
  EXPECT_FALSE(answer.at("breakdown").empty());
  for (const auto& [device, parts] : answer.at("breakdown").items()) {
    double seconds = 0;
    for (const auto& [name, part] : parts.items()) seconds += part.get<double>();
    // The interval's value adds the devices' variation.
    EXPECT_LE(seconds, step * (1 + 1e-6)) << device;
    EXPECT_GT(parts.at("compute_s"), 0) << device;
    const Json& memory = answer.at("memory").at(device);
    double bytes = 0;
    for (const auto& [name, part] : memory.items())
      if (name.ends_with("_bytes")) bytes += part.get<double>();
    EXPECT_EQ(bytes, answer.at("peak_bytes").at(device)) << device;
    EXPECT_NE(memory.at("at"), "") << device;
    EXPECT_GT(memory.at("largest").at(0).at("bytes"), 0) << device;
    const Json& interval = answer.at("peak_interval_bytes").at(device);
    EXPECT_LE(interval.at(0).get<double>() * (1 - 1e-4), bytes) << device;
    EXPECT_GE(interval.at(1).get<double>() * (1 + 1e-4), bytes) << device;
  }
}

/// The golden MLP; an instruction takes 10 us and 0.1 us per byte that it writes.
class PlanVerbTest : public VerbTest {
 protected:
  PlanVerbTest() {
    workers_.per_byte = 1e-7;
    write_cluster(emulated_text());
  }
  Words asking(const std::string& verb, int batch, const Words& more = {}) const {
    Words words = {verb, "-m", model_, "-C", cluster_, "--global-batch", std::to_string(batch)};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  Json plan(int batch, const Words& more = {}) { return answer(asking("plan", batch, more)); }
  std::string refused(int batch, const Words& more = {}) {
    return refusal(asking("plan", batch, more));
  }
};

TEST_F(PlanVerbTest, SplitsTheBatchBySpeed) {
  const Json found = plan(560);
  EXPECT_THAT(found.at("outcome"), ::testing::AnyOf("optimal", "feasible"));
  const Json& split = found.at("batch_split");
  EXPECT_EQ(sum(split), 560);
  // 0.8 : 0.4 : 0.2 gives 320, 160 and 80; a step's constant part gives faster devices more.
  EXPECT_THAT(split.at("a:0").get<int>(), AllOf(::testing::Ge(320), ::testing::Le(352)));
  EXPECT_THAT(split.at("b:0").get<int>(), AllOf(::testing::Ge(144), ::testing::Le(160)));
  EXPECT_THAT(split.at("c:0").get<int>(), AllOf(::testing::Ge(56), ::testing::Le(80)));
  const double step = found.at("predicted_step_s");
  EXPECT_LE(found.at("lower_bound_s"), step * (1 + 1e-9));
  EXPECT_THAT(found.at("baselines"), SizeIs(2));
  EXPECT_GT(found.at("baselines").at("equal_split").at("step_s"), step);
  EXPECT_GT(found.at("baselines").at("best_single").at("step_s"), step);
  expect_prediction(found);
}

TEST_F(PlanVerbTest, TakesASplitAndLeavesDevicesOut) {
  EXPECT_EQ(plan(60, {"--batch-split", "30,20,10"}).at("batch_split"),
            (Json{{"a:0", 30}, {"b:0", 20}, {"c:0", 10}}));
  const Json without = plan(560, {"--exclude", "b:0"}).at("batch_split");
  EXPECT_FALSE(without.contains("b:0"));
  EXPECT_EQ(sum(without), 560);
}

TEST_F(PlanVerbTest, ATimeLimitEndsTheSearchWithAPlan) {
  const Json found = plan(60, {"--planner", "spmd", "--time-limit", "1e-9"});
  EXPECT_EQ(found.at("outcome"), "limit");
  EXPECT_GT(found.at("lower_bound_s"), 0);
  EXPECT_LE(found.at("lower_bound_s"), found.at("predicted_step_s"));
  EXPECT_THAT(found.at("why"),
              Contains("the time limit ended the search: more time may find a better plan"));
  EXPECT_EQ(refused(60, {"--time-limit", "-1"}),
            "2 --time-limit: found -1, wanted seconds above 0 [cli.time-limit]");
}

TEST_F(PlanVerbTest, ASeedDrawsTheSamePlanAgain) {
  std::set<std::string> drawn;
  for (const char* seed : {"1", "2", "3"}) {
    const Words flags = {"--planner", "random", "--seed", seed};
    const Json split = plan(60, flags).at("batch_split");
    EXPECT_EQ(sum(split), 60);
    EXPECT_EQ(plan(60, flags).at("batch_split"), split);
    drawn.insert(split.dump());
  }
  EXPECT_GT(drawn.size(), 1U);
}

TEST_F(PlanVerbTest, LeavesDevicesIdleForWhichThereIsNoSample) {
  const Json found = plan(2, {"--planner", "split"});
  EXPECT_EQ(sum(found.at("batch_split")), 2);
  EXPECT_LT(found.at("batch_split").size(), 3U);
  EXPECT_EQ(found.at("batch_split").size() + found.at("idle").size(), 3U);
}

TEST_F(PlanVerbTest, TooLittleMemoryIsExit3WithItsArithmetic) {
  const Words alone = {"--planner", "split", "--exclude", "b:0", "--exclude", "c:0"};
  write_cluster(emulated_text("speed = 0.8\n  memory = \"2KiB\""));
  // 2324 bytes each of parameters, gradients and bucket are 6.81 KiB; the rest is for a sample.
  EXPECT_EQ(refused(60, alone),
            "3 no feasible plan: a:0 needs 6.88 KiB for 1 sample, has 2 KiB; a:0 holds 0 samples "
            "within its memory and the model's limit of 4096, the global batch is 60 "
            "[plan.infeasible]");
}

TEST_F(PlanVerbTest, AFaultOfTheClusterFileIsExit2WithItsLine) {
  const auto answered = [&](const std::string& keys) {
    write_cluster(emulated_text(keys));
    return refused(60);
  };
  EXPECT_EQ(answered("speeed = 0.8"),
            "2 " + cluster_ +
                ":7: unknown key 'speeed' in [[node.device]], did you mean 'speed'?; known keys: "
                "kind, model, count, threads, speed, quota, memory, uuid [cluster.unknown-key]");
  EXPECT_EQ(
      answered("speed = 3.0"),
      "2 " + cluster_ + ":5: device 'a:0': speed = 3.0, wanted > 0 and <= 1 [cluster.invalid]");
  EXPECT_EQ(answered("memory = \"12 bananas\""),
            "2 " + cluster_ +
                ":7: key 'memory': found '12 bananas', wanted a size such as 512MiB, 24GiB, 1.2GB "
                "[cluster.value]");
}

TEST_F(PlanVerbTest, ATruncatedModelIsExit2) {
  const std::string whole = read_file(model_).value();
  write("mlp.motley", std::string_view(whole).substr(0, whole.size() - 100));
  // The header locates 2324 bytes of parameters.
  EXPECT_EQ(refused(60),
            "2 " + model_ +
                ": tensor 'net.2.weight': 'data_offsets' [1684,2324] do not lie in the "
                "2224 bytes of data [safetensors.corrupt]");
}

TEST_F(PlanVerbTest, APlanOfAnotherClusterIsExit4) {
  const std::string file = directory_.file("plan.json");
  plan(60, {"--batch-split", "30,30,0", "-o", file});
  const auto hash = [&] { return cluster::cluster_hash(cluster::read_cluster(cluster_).value()); };
  const std::string made_for = hash(), three = emulated_text();
  write_cluster(three.substr(0, three.find("[[node]]\nname = \"c\"")));
  EXPECT_EQ(refusal({"simulate", "--plan", file, "-m", model_, "-C", cluster_}),
            fmt::format("4 {}: plan: made for cluster {}, this cluster is {}; plan again "
                        "[plan.stale]",
                        file, made_for, hash()));
}

TEST_F(PlanVerbTest, OwnersAreOfPlansThatAreMadeNow) {
  const std::string file = directory_.file("plan.json");
  const Json found = plan(60, {"--sync", "owners", "--batch-split", "30,20,10", "-o", file});
  EXPECT_EQ(Json::parse(read_file(file).value()).at("owners").at(0).at("parameters"),
            Json::array({"*"}));
  EXPECT_EQ(found.at("lower_bound_s"), 0);
  EXPECT_EQ(
      refusal({"simulate", "--plan", file, "-m", model_, "-C", cluster_, "--sync", "owners"}),
      "2 --sync: " + file + " says who sums gradients; leave it out, or plan again [cli.sync]");
  for (const Words& more : {Words{"--planner", "hap-released", "--hap-model", "vgg19"},
                            Words{"--layer-times", "a=b.json", "--planner", "stages"},
                            Words{"--layer-times", "a=b.json"}, Words{"--market", "m.toml"}}) {
    Words words = {"plan", "--sync", "server:a:0"};
    words.insert(words.end(), more.begin(), more.end());
    EXPECT_EQ(refusal(words),
              "2 --sync goes with plans that are made of a model on a cluster (-m, -C); leave it "
              "out [cli.sync]");
  }
  EXPECT_EQ(refused(60, {"--sync", "servers"}),
            "2 --sync: found 'servers', wanted auto, all_reduce, owners or server:DEVICE "
            "[cli.sync]");
}

TEST_F(PlanVerbTest, EveryPhaseIsDumped) {
  plan(60, {"--dump-dir", directory_.file("dump")});
  for (const char* name : {"01-load.txt", "02-price.txt", "03-search.txt", "04-synth.txt"})
    EXPECT_TRUE(std::filesystem::exists(directory_.file(std::string("dump/") + name))) << name;
  EXPECT_THAT(read_file(directory_.file("dump/04-synth.txt")).value(),
              StartsWith("motley.program/1"));
}

TEST_F(PlanVerbTest, SimulateSaysWhatAStepIsMadeOf) {
  const Json found = answer(asking("simulate", 60, {"--batch-split", "34,17,9"}));
  EXPECT_GT(found.at("step_s"), 0);
  EXPECT_GT(found.at("exposed_comm_s"), 0);
  for (const char* device : {"a:0", "b:0", "c:0"}) {
    EXPECT_GT(found.at("peak_bytes").at(device), 0);
    EXPECT_THAT(found.at("busy_share").at(device).get<double>(),
                AllOf(::testing::Gt(0), ::testing::Le(1)));
  }
  EXPECT_EQ(found.at("step_s"), plan(60, {"--batch-split", "34,17,9"}).at("predicted_step_s"));
}

TEST_F(PlanVerbTest, WhatIsProbedIsPlanned) {
  const Json found = answer({"probe", "-o", cluster_});
  EXPECT_FALSE(found.at("devices").empty());
  const Json doctor = answer({"doctor", "-m", model_, "-C", cluster_});
  for (const Json& finding : doctor.at("findings"))
    EXPECT_NE(finding.at("severity"), "error") << finding;
  EXPECT_EQ(sum(plan(60).at("batch_split")), 60);
}

TEST_F(PlanVerbTest, AGraphWithoutWeightsIsPlannedAndNotRun) {
  EXPECT_TRUE(write_safetensors(model_, {}, {{"motley.graph", control::mlp_text()}}));
  EXPECT_EQ(sum(plan(60).at("batch_split")), 60);
  EXPECT_EQ(refusal(asking(
                "run", 4,
                {"--data", data_, "--steps", "1", "--planner", "split", "--run-dir", run_dir_})),
            "2 " + model_ +
                ": holds no weights (exported with --graph-only); export it again without "
                "--graph-only to train [cli.graph-only]");
}

// The distance of two inputs, which has no sharding rule.
constexpr const char* kWithoutRules = R"(motley.graph/1
name "distances"
size batch 1 4096
input %0: f32[batch, 4, 3] "x"
param %1: f32[4, 3] "w"
tangent %2: f32[]
op %3: f32[batch, 4, 3] = aten::mul.Tensor(%0, %1) fwd ""
op %4: f32[batch, 4, 4] = aten::_cdist_forward(%3, %3, 2.0, none) fwd ""
op %5: f32[] = aten::sum(%4, none) fwd ""
op %6: f32[batch, 4, 4] = aten::expand(%2, [size(batch), 4, 4], false) bwd ""
op %7: f32[batch, 4, 3] = aten::_cdist_backward(%6, %3, %3, 2.0, %4) bwd ""
op %8: f32[batch, 4, 3] = aten::mul.Tensor(%7, %0) bwd ""
op %9: f32[1, 4, 3] = aten::sum.dim_IntList(%8, [0], true, none) bwd ""
op %10: f32[4, 3] = aten::view(%9, [4, 3]) bwd ""
output loss %5
output gradient %10 of "w"
)";

TEST_F(PlanVerbTest, AModelWithoutRulesIsPlannedWholeAndSaysWhy) {
  write("mlp.motley", kWithoutRules);
  write_cluster(rented_text());
  const Json found = plan(6);
  EXPECT_EQ(found.at("batch_split"), (Json{{"a:0", 6}}));
  EXPECT_EQ(found.at("idle"), (Json{"b:0"}));
  EXPECT_THAT(
      found.at("why"),
      Contains(HasSubstr("whole: no rule for aten::_cdist_forward, aten::_cdist_backward")));
  EXPECT_THAT(found.at("why"), Contains(HasSubstr("b:0 stays idle: with it the step would take")));
}

TEST_F(PlanVerbTest, DevicesThatAreNotHereArePlannedByTheirDataSheets) {
  write_cluster(rented_text());
  const Json found = plan(4096, {"--profile", "never"});
  expect_prediction(found);
  EXPECT_THAT(found.at("interval_basis"), HasSubstr("device kinds"));
  for (const auto& [device, memory] : found.at("memory").items())
    EXPECT_GT(memory.at("framework_bytes"), 512 << 20) << device;
  const Words halves = {"--batch-split", "2048,2048"};
  const double quick = plan(4096, halves).at("predicted_step_s");
  write_cluster(rented_text("100Mbps"));
  EXPECT_GT(plan(4096, halves).at("predicted_step_s"), quick);
}

TEST_F(PlanVerbTest, AServerIsAsQuickAsItsCard) {
  std::string text = "schema = \"motley.cluster/1\"\nname = \"cards\"\n";
  for (const auto& [node, card] : {std::pair("a", "1Gbps"), {"b", "10Mbps"}, {"c", "10Mbps"}})
    text += fmt::format(
        "[[node]]\nname = \"{}\"\nbandwidth = \"{}\"\n"
        "device = [ {{ kind = \"v100-16g\" }} ]\n",
        node, card);
  write_cluster(text + "[[link]]\nall = true\nbandwidth = \"1Tbps\"\nlatency = \"1us\"\n");
  const auto step = [&](const char* sync) {
    return plan(3000, {"--planner", "equal", "--bucket", "128B", "--sync", sync})
        .at("predicted_step_s")
        .get<double>();
  };
  const double all = step("all_reduce"), server = step("server:a:0");
  EXPECT_GT(step("server:b:0"), 1.2 * server);
  EXPECT_LE(step("owners"), server * (1 + 1e-9));
  EXPECT_EQ(step("auto"), all);
  const Json asked = plan(3000, {"--planner", "equal", "--bucket", "128B", "--sync", "owners"});
  EXPECT_THAT(
      asked.at("why").at(0).get<std::string>(),
      MatchesRegex(
          "gradients are summed by owners by what links carry, as asked for; a step takes .* "
          "as the planner chose, .* with owners of equal parts, .* with owners by "
          "what links carry"));
}

/// One device of an unmeasured kind, with exactly the memory predicted for all samples.
std::string full_text(std::int64_t bytes) {
  return fmt::format(
      "schema = \"motley.cluster/1\"\nname = \"full\"\n[[node]]\nname = \"a\"\n"
      "  [[node.device]]\n  kind = \"rtx4090\"\n  memory = \"{}B\"\n",
      bytes);
}

TEST_F(PlanVerbTest, TheUpperEndOfWhatNobodyMeasuredFits) {
  constexpr int kBatch = 4096;
  write_cluster(full_text(std::int64_t{1} << 34));
  const Json roomy = plan(kBatch);
  EXPECT_EQ(roomy.at("may_not_fit"), false);
  const auto needed = roomy.at("peak_bytes").at("a:0").get<std::int64_t>();
  write_cluster(full_text(needed));
  const Json found = plan(kBatch);
  expect_prediction(found);
  EXPECT_EQ(found.at("may_not_fit"), false);
  EXPECT_LE(found.at("peak_interval_bytes").at("a:0").at(1), needed);
  EXPECT_EQ(found.at("baselines").at("best_single").at("fits"), false);
}

TEST_F(PlanVerbTest, APlanThatMayNotFitSaysSo) {
  constexpr int kBatch = 4096;
  const Words flags = {"--planner", "split"};
  write_cluster(full_text(std::int64_t{1} << 34));
  const auto needed = plan(kBatch, flags).at("peak_bytes").at("a:0").get<std::int64_t>();
  write_cluster(full_text(needed));
  const Json found = plan(kBatch, flags);
  EXPECT_EQ(found.at("may_not_fit"), true);
  EXPECT_EQ(found.at("peak_bytes").at("a:0"), needed);
  EXPECT_GT(found.at("peak_interval_bytes").at("a:0").at(1), needed);
  EXPECT_THAT(found.at("why").at(0).get<std::string>(),
              MatchesRegex("it may not fit, as nobody measured what is needed there: a:0 is to "
                           "hold [0-9]+ MiB, and [0-9]+ MiB of its [0-9]+ MiB would fit nine times "
                           "in ten"));
  ASSERT_EQ(call(asking("plan", kBatch, flags)), kDone) << err_;
  EXPECT_THAT(out_, ContainsRegex("chosen .* 1.00x  may not\n"));
}

TEST_F(PlanVerbTest, TheMemoryOfADeviceIsOneFigure) {
  write_cluster(rented_text());
  const Words flags = {"--profile", "never", "--batch-split", "2048,2048"};
  const Json found = plan(4096, flags);
  ASSERT_EQ(call(asking("plan", 4096, flags)), kDone) << err_;
  for (const auto& [device, memory] : {std::pair("a:0", "24 GiB"), {"b:0", "16 GiB"}}) {
    const std::string peak =
        format_bytes(Bytes(found.at("peak_bytes").at(device).get<std::int64_t>()));
    EXPECT_THAT(out_, HasSubstr(fmt::format("{} of {} (", peak, memory)));
    EXPECT_THAT(out_, ContainsRegex(fmt::format("{} .* {} \\(", device, peak)));
  }
  // Without a stated amount of free memory, drivers and desktops are deducted.
  EXPECT_THAT(out_, HasSubstr("(2%), planned up to 20.9 GiB"));
  const Json simulated = answer(asking("simulate", 4096, flags));
  for (const char* key : {"peak_bytes", "peak_interval_bytes", "memory"})
    EXPECT_EQ(simulated.at(key), found.at(key)) << key;
}

/// Renames the CPU in a store's single-device times.
void rename_processor(const std::string& path, const std::string& model, const std::string& name) {
  auto store = cost::ProfileStore::open(path).value();
  const std::string subject = search::profile_subject(graph::read_model(model)->hash,
                                                      {.updates = plan::Updates::kPortable});
  const std::vector<cost::DeviceKey> keys = store.profiled_devices(subject).value();
  for (const cost::DeviceKey& key : keys) {
    if (key.kind.find(" at ") != std::string::npos ||
        key.kind.find(" beside ") != std::string::npos)
      continue;
    cost::DeviceKey renamed = key;
    renamed.kind = name;
    std::vector<cost::OpEntry> entries = store.ops(key).value();
    for (cost::OpEntry& entry : entries) entry.device = renamed;
    ASSERT_TRUE(store.put(entries));
    ASSERT_TRUE(store.put_batches(subject, renamed, store.batches(subject, key).value()));
  }
}

TEST_F(PlanVerbTest, AProfileIsCarriedToDevicesThatAreNotHere) {
  write_cluster(rented_text());
  const Words flags = {"--profile", "never", "--batch-split", "128,128"};
  const Json by_figures = plan(256, flags);
  EXPECT_EQ(by_figures.at("times_from"),
            (Json{{"a:0", "figures of rtx4090"}, {"b:0", "figures of t4"}}));
  write_cluster(emulated_text());
  ASSERT_EQ(call(asking("profile", 256, {"--updates", "portable"})), kDone) << err_;
  rename_processor(environment_["MOTLEY_PROFILES"], model_, "Tesla T4");
  write_cluster(rented_text());
  const Json carried = plan(256, flags);
  expect_prediction(carried);
  EXPECT_EQ(carried.at("times_from"),
            (Json{{"a:0", "carried from Tesla T4"}, {"b:0", "carried from Tesla T4"}}));
  EXPECT_THAT(carried.at("interval_basis"), HasSubstr("carried to other device kinds"));
  const auto compute = [](const Json& found, const char* device) {
    return found.at("breakdown").at(device).at("compute_s").get<double>();
  };
  EXPECT_LT(compute(carried, "a:0"), compute(carried, "b:0"));
  EXPECT_GT(compute(carried, "b:0"), 2 * compute(by_figures, "b:0"));
  ASSERT_EQ(call(asking("plan", 256, flags)), kDone);
  EXPECT_THAT(out_, HasSubstr("times: carried from Tesla T4"));
}

TEST_F(PlanVerbTest, AModelThatWasNeverProfiledIsModelledByOthers) {
  // "cpu" is followed by this machine's processor.
  EXPECT_THAT(refused(60, {"--profile", "model"}),
              MatchesRegex("2 cpu .* with threads = 1 and PyTorch 2\\.15: 0 measured operators, "
                           "wanted 10 or more to say what others take; run `motley profile` with "
                           "some model first \\[cost\\.few-measurements\\]"));
  const std::string cnn =
      write("cnn.txt", read_file(testing::source_path("tests/golden/graph/cnn.txt")).value());
  ASSERT_EQ(call({"profile", "-m", cnn, "-C", cluster_, "--global-batch", "60"}), kDone) << err_;
  EXPECT_THAT(refused(60, {"--profile", "never"}),
              MatchesRegex("2 model 'mlp' has no profile on cpu .* with threads = 1 and PyTorch "
                           "2\\.15, wanted up to batch 60; run `motley profile -m MODEL -C CLUSTER "
                           "--global-batch 60` \\[search\\.missing-profile\\]"));
  const Json found = plan(60, {"--profile", "model"});
  expect_prediction(found);
  EXPECT_THAT(found.at("interval_basis").get<std::string>(), HasSubstr("not profiled"));
}

TEST_F(PlanVerbTest, WhatSlowsComputeBesideExchangesMakesAStepLonger) {
  write_cluster(control::kTwoCpus);
  const auto step = [&](double beside) {
    workers_.beside = beside;
    const std::string store = directory_.file(fmt::format("{}.db", beside));
    // With small buckets the first exchanges overlap with the backward pass.
    const Words flags = {"--batch-split", "300,300", "--bucket", "256", "--profiles", store};
    EXPECT_EQ(call(asking("profile", 600, flags)), kDone) << err_;
    const auto kept = cost::ProfileStore::open(store)->interference().value();
    EXPECT_EQ(kept.size(), 1U);
    EXPECT_NEAR(kept.at(0).factor, beside, 1e-9 * beside);
    return answer(asking("simulate", 600, flags)).at("step_s").get<double>();
  };
  const double free = step(0), half = step(1), stopped = step(100);
  EXPECT_LT(free, half);
  EXPECT_LT(half, stopped);
}

TEST_F(PlanVerbTest, ConditionsGiveDistributions) {
  write_cluster(rented_text());
  const auto under = [&](const std::string& conditions) {
    const std::string path =
        write("conditions.json", R"({"schema": "motley.conditions/1", )" + conditions + "}");
    return answer(asking("simulate", 4096,
                         {"--batch-split", "2048,2048", "--steps", "10", "--conditions", path,
                          "--runs", "20"}))
        .at("under_conditions")
        .at("step_s");
  };
  const double exact =
      answer(asking("simulate", 4096, {"--batch-split", "2048,2048"})).at("step_s");
  // Without jitter all runs are equal; the slowed device only computes twice as long.
  const Json slow = under(R"("slow_downs": [{"device": "b:0", "factor": 2}])");
  EXPECT_EQ(slow.at("p10"), slow.at("p90"));
  EXPECT_GT(slow.at("p50"), exact);
  EXPECT_LE(slow.at("p50"), 2 * exact);
  const Json jitter = under(R"("jitter": [{"device": "b:0", "per_step": 0.2}])");
  EXPECT_LT(jitter.at("p10"), jitter.at("p50"));
  EXPECT_LT(jitter.at("p50"), jitter.at("p90"));
  const std::string empty = write("empty.json", "{}");
  EXPECT_EQ(refusal(asking("simulate", 4096, {"--conditions", empty})),
            "2 " + empty + ": key 'schema' is missing [json.missing-key]");
}

}  // namespace
}  // namespace motley::cli
