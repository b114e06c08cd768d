#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "motley/control/run_directory.h"
#include "motley/control/training/joiner.h"
#include "motley/cost/measured/profile_store.h"
#include "motley/graph/model_file.h"
#include "motley/policy/decision.h"
#include "motley/run/checkpoints/checkpoint.h"
#include "motley/testing/verb_calls.h"

namespace motley::cli {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::SizeIs;

/// `run` of the golden MLP on two CPUs, with 5 of 8 samples on the first.
class RunVerbTest : public VerbTest {
 protected:
  Words words(const Words& more = {}) const { return without_plan({"--batch-split", "5,3"}, more); }
  Words without_plan(Words flags, const Words& more = {}) const {
    Words made = {"run", "-m", model_, "-C", cluster_, "--data", data_, "--run-dir", run_dir_};
    made.insert(made.end(), flags.begin(), flags.end());
    if (std::find(flags.begin(), flags.end(), "--plan") == flags.end())
      made.insert(made.end(), {"--global-batch", "8"});
    if (std::find(more.begin(), more.end(), "--steps") == more.end())
      made.insert(made.end(), {"--steps", "3"});
    made.insert(made.end(), {"--trace-steps", "0"});  // fake workers leave none
    made.insert(made.end(), more.begin(), more.end());
    return made;
  }
  std::string refused(const Words& more) { return refusal(words(more)); }
  Words under(const std::string& conditions, Words more = {}) const {
    more.insert(more.end(),
                {"--conditions", write("conditions.json", R"({"schema": "motley.conditions/1", )" +
                                                              conditions + "}")});
    return more;
  }
  void launch() {
    environment_.insert(
        {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "1"}});
  }
  Json job() const {
    return parse_json(read_file(run_dir_ + "/job.json").value(), "job.json").value();
  }
};

TEST_F(RunVerbTest, SaysWhatCameOfItForPeople) {
  ASSERT_EQ(call(words({"--adapt", "none"})), kDone) << err_;
  // The workers' events: steps of 0.5 s with 0.25 s of compute, peaks of 1000 (rank + 1).
  EXPECT_THAT(out_, MatchesRegex("3 steps, loss 2.00000 -> 1.00000, 500 ms a step \\(plan [0-9.]+ "
                                 "[mu]s, \\+[0-9.]+%\\)\n"
                                 "  a:0            5 samples  busy  50%  peak 1000 B\n"
                                 "  a:1            3 samples  busy  50%  peak 1.95 KiB\n"
                                 "checkpoint \n"
                                 "model      .*/run/model.safetensors\n"));
  ASSERT_THAT(workers_.jobs, SizeIs(1));
  EXPECT_EQ(workers_.jobs[0].steps, 3);
  EXPECT_FALSE(workers_.jobs[0].changes);
}

TEST_F(RunVerbTest, DataIsLookedForBeforeAnythingIsMeasured) {
  EXPECT_EQ(refusal({"run", "-m", model_, "-C", cluster_, "--global-batch", "8", "--steps", "3",
                     "--data", directory_.file("none.npz")}),
            "2 " + directory_.file("none.npz") + ": no such file [file.missing]");
  EXPECT_THAT(workers_.timed, IsEmpty());
}

TEST_F(RunVerbTest, DataThatIsNotTheModelsIsExit2) {
  const auto with_data = [&](const std::string& path) {
    return refusal({"run", "-m", model_, "-C", cluster_, "--global-batch", "8", "--steps", "3",
                    "--run-dir", run_dir_, "--data", path});
  };
  const std::vector<float> x(8 * 3);
  const std::vector<std::int64_t> y(8);
  const NamedTensor tensors[] = {{"x", {DType::kF32, {8, 3}, std::as_bytes(std::span(x))}},
                                 {"y", {DType::kI64, {8}, std::as_bytes(std::span(y))}}};
  const std::string other = directory_.file("other.safetensors");
  ASSERT_TRUE(write_safetensors(other, tensors, {}));
  EXPECT_EQ(
      with_data(other),
      "2 " + other +
          ": array 'x': found f32[8, 3], wanted f32[N, 12] (N samples); reshape the array, or "
          "export the model with inputs of this shape [data.shape]");
  const std::string digits =
      read_file(testing::source_path("examples/data/digits.npz")).value().substr(0, 5000);
  EXPECT_EQ(with_data(write("cut.npz", digits)),
            "2 " + directory_.file("cut.npz") +
                ": not a .npz file (no zip directory at its end); is it truncated? [data.npz]");
  EXPECT_THAT(workers_.jobs, IsEmpty());
}

TEST_F(RunVerbTest, SaysWhatIsWrongWithDecisions) {
  EXPECT_EQ(refused({"--adapt", "dance"}),
            "2 --adapt: found 'dance', wanted auto, none, plan, split or batch [cli.adapt]");
  EXPECT_EQ(refused({"--adapt", "split", "--policy", "canikin"}),
            "2 unknown policy 'canikin', wanted one of motley even hetseq adaptdl lb-bsp cannikin, "
            "did you mean 'cannikin'? [adapt.policy]");
  EXPECT_EQ(refused({"--policy", "even"}),
            "2 --policy goes with --adapt split or batch [cli.policy]");
  EXPECT_EQ(refused({"--adapt", "split", "--batch-limits", "8:80"}),
            "2 --batch-limits, --batch-rule and --objective go with --adapt batch [cli.batch]");
}

TEST_F(RunVerbTest, SaysWhatIsWrongWithConditions) {
  EXPECT_EQ(
      refused(under(R"("absences": [{"device": "a:0", "from_s": 1}])")),
      "2 conditions: device 'a:0' goes away: a run ends when a device does; add --elastic, or "
      "leave absences out [run.conditions]");
  EXPECT_EQ(refused(under(R"("slow_downs": [{"device": "z:0", "from_s": 1, "factor": 2}])")),
            "2 cluster 'two' has no device 'z:0', did you mean 'a:0'? [cluster.unknown-device]");
  EXPECT_EQ(refused(under(R"("slow_downs": [{"device": "a:0", "from_s": 1, "factor": 0.5}])")),
            "2 conditions: 'a:0': a factor of 0.5: a run can only be slowed [run.conditions]");
  EXPECT_EQ(refused({"--conditions", directory_.file("none.json")}),
            "2 " + directory_.file("none.json") + ": no such file [file.missing]");
  EXPECT_THAT(workers_.jobs, IsEmpty());
}

TEST_F(RunVerbTest, SaysWhatIsWrongWithABatchThatGrows) {
  const auto grows = [&](Words flags) {
    flags.insert(flags.begin(), {"--adapt", "batch"});
    return refused(flags);
  };
  EXPECT_EQ(grows({"--policy", "adaptld"}),
            "2 unknown policy 'adaptld', wanted one of motley adaptdl cannikin simigrad jabas, did "
            "you mean 'adaptdl'? [adapt.policy]");
  EXPECT_EQ(
      grows({"--batch-limits", "40"}),
      "2 --batch-limits: found '40', wanted the least and the most samples a step as MIN:MAX, "
      "1 or more [cli.batch-limits]");
  EXPECT_EQ(grows({"--batch-limits", "80:40"}),
            "2 --batch-limits: found '80:40', wanted the least and the most samples a step as "
            "MIN:MAX, 1 or more [cli.batch-limits]");
  EXPECT_EQ(
      grows({"--batch-limits", "80:400"}),
      "2 --batch-limits: found 80:400, the training begins with 8, which must lie between them "
      "[cli.batch-limits]");
  EXPECT_EQ(
      grows({"--batch-rule", "cubic"}),
      "2 --batch-rule: found learning-rate rule 'cubic', wanted one of adascale, sqrt, linear, "
      "none [adapt.rule]");
  EXPECT_EQ(grows({"--objective", "fame"}),
            "2 --objective: found 'fame', wanted time, cost or deadline:DURATION (deadline:2h) "
            "[cli.objective]");
  EXPECT_EQ(grows({"--objective", "cost"}),
            "2 --objective: the cluster file has no price_per_hour of node 'a' [cli.objective]");
  EXPECT_EQ(grows({"--policy", "jabas", "--elastic"}),
            "2 --policy jabas: knows of no devices that come and go (--elastic) [cli.policy]");
}

TEST_F(RunVerbTest, ABatchThatGrowsWantsAPlanThatSplitsIt) {
  const Words batch = {"--adapt", "batch"};
  // Plans that shard operators, such as this random one, are refused.
  EXPECT_EQ(refusal(without_plan({"--planner", "random", "--seed", "8"}, batch)),
            "2 --adapt batch goes with plans that split the batch alone, this one is: operators "
            "split over samples 6:2 in 2 micro-batches; add --planner split [cli.adapt]");
  EXPECT_EQ(refusal(without_plan({"--planner", "split", "--micro-batches", "3"}, batch)),
            "2 --micro-batches: found 3 for a global batch of 8, wanted a number that divides it "
            "[search.micro-batches]");
  // One device compares gradients of micro-batches; one sample makes only one.
  EXPECT_EQ(
      refusal({"run", "-m", model_, "-C", cluster_, "--data", data_, "--run-dir", run_dir_,
               "--steps", "3", "--global-batch", "1", "--exclude", "a:1", "--adapt", "batch"}),
      "2 --adapt batch learns the noise of gradients from how those of devices, or of "
      "micro-batches of one device, differ: there is one device, and its step cannot be done "
      "in micro-batches [cli.adapt]");
}

TEST_F(RunVerbTest, ElasticFlagsThatDoNotGoTogether) {
  EXPECT_EQ(refused({"--survive", "1"}),
            "2 --survive: a run outlives the loss of devices with --elastic; add it [cli.elastic]");
  EXPECT_EQ(refused({"--elastic", "--absent", "a:0", "--absent", "a:1"}),
            "2 --absent: none of the devices is left to begin with [cli.elastic]");
  EXPECT_EQ(refused({"--elastic", "--absent", "b:0"}),
            "2 cluster 'two' has no device 'b:0', did you mean 'a:0'? [cluster.unknown-device]");
  launch();
  EXPECT_EQ(refused({"--elastic"}),
            "2 --elastic: a launcher ends all ranks when one is lost; start the run without it: "
            "motley starts its processes itself, on other hosts by ssh [cli.elastic]");
  EXPECT_EQ(workers_.ended, kUsage);
}

TEST_F(RunVerbTest, RanksOfALauncherOnOtherHostsStayAsPlanned) {
  launch();
  std::string text = control::kTwoCpus;
  write_cluster(text +
                "[[node]]\nname = \"b\"\nhost = \"elsewhere\"\n  [[node.device]]\n  kind = "
                "\"cpu\"\n[[link]]\nall = true\nbandwidth = \"1Gbps\"\nlatency = \"1ms\"\n");
  EXPECT_EQ(refusal(without_plan({"--batch-split", "3,3,2"}, {"--adapt", "split"})),
            "2 --adapt split: a launcher started ranks on other hosts, where a running plan cannot "
            "be changed; leave it out, or start the run without a launcher [cli.adapt]");
}

TEST_F(RunVerbTest, DecisionsThatAreNone) {
  const std::string path = write("decisions.jsonl", "");
  const Words flags = {"--decisions", path};
  EXPECT_EQ(refusal(without_plan(flags)), "2 " + path + ": has no decision [decisions.none]");
  EXPECT_EQ(refusal(without_plan({"--plan", "plan.json", "--decisions", path})),
            "2 --decisions has plans of its own, --plan is another: give one of the two "
            "[cli.decisions]");
  write("decisions.jsonl", "{\"policy\": 1}\n");
  EXPECT_EQ(refusal(without_plan(flags)),
            "2 " + path + ":1: key 'policy': found an integer, wanted a string [json.type]");
}

TEST_F(RunVerbTest, DecisionsOfAnotherRunAreRepeated) {
  std::string lines;
  std::vector<std::string> plans;
  for (const char* split : {"5,3", "6,2"}) {
    const std::string file = directory_.file("plan.json");
    ASSERT_EQ(call_with_inputs("plan", {"--batch-split", split, "-o", file}), kDone) << err_;
    plans.push_back(read_file(file).value());
    policy::Decision decision{.policy = "motley", .begins = plans.size() == 1 ? 0 : 2};
    decision.plan = plans.back();
    lines += policy::print_decision(decision) + "\n";
  }
  const std::string path = write("decisions.jsonl", lines);
  ASSERT_EQ(call(without_plan({"--decisions", path})), kDone) << err_;
  EXPECT_EQ(read_file(run_dir_ + "/first_plan.json").value(), plans[0]);
  ASSERT_THAT(workers_.jobs, SizeIs(1));
  ASSERT_TRUE(workers_.jobs[0].changes);
  EXPECT_THAT(workers_.jobs[0].changes->at, ElementsAre(2));
  ASSERT_THAT(workers_.changes, SizeIs(1));
  EXPECT_EQ(workers_.changes[0].number, 1);
}

TEST_F(RunVerbTest, PrepareWritesTheRunDirectoryForAScript) {
  const Json found = answer({"run", "-m", model_, "-C", cluster_, "--global-batch", "8",
                             "--batch-split", "5,3", "--run-dir", run_dir_, "--prepare"});
  EXPECT_EQ(found, (Json{{"run_dir", run_dir_}, {"job", run_dir_ + "/job.json"}}));
  EXPECT_THAT(workers_.jobs, IsEmpty());
  EXPECT_THAT(job().at("devices"), SizeIs(2));
}

TEST_F(RunVerbTest, EndsEarlyWithTheBestModel) {
  const Words flags = words({"--steps", "9", "--eval-data", data_, "--eval-every", "1",
                             "--patience", "1", "--adapt", "none"});
  EXPECT_EQ(refusal(flags), "2 " + model_ +
                                ": holds no graph to evaluate by; export it again with python -m "
                                "motley.export [cli.no-evaluation]");
  const Safetensors weights = Safetensors::open(model_).value();
  std::vector<NamedTensor> tensors;
  for (const auto& [name, tensor] : weights.tensors()) tensors.push_back({name, tensor});
  const std::string evaluated = directory_.file("evaluated.motley");
  ASSERT_TRUE(write_safetensors(
      evaluated, tensors,
      {{"motley.graph", control::mlp_text()}, {"motley.eval", control::mlp_evaluation_text()}}));
  std::filesystem::rename(evaluated, model_);
  const Json no_metrics = Json::object();
  workers_.events.push_back(
      {"evaluation", 0, {{"step", 2}, {"loss", 1.25}, {"metrics", no_metrics}, {"is_best", true}}});
  workers_.events.push_back(
      {"evaluation", 0, {{"step", 3}, {"loss", 1.5}, {"metrics", no_metrics}}});
  ASSERT_EQ(call(flags), kDone) << err_;
  const std::string ended = "ended after step 3 of 9: 1 evaluation without a better loss\n";
  EXPECT_THAT(out_, HasSubstr(ended + "best       " + run_dir_ +
                              "/model_best.safetensors, after step 2: loss 1.25000\n"));
  EXPECT_THAT(err_, HasSubstr("evaluated after step 2: loss 1.25000, the best so far\n"));
  workers_.outcome.end = run::JobEnd::kStopped;
  ASSERT_EQ(call(flags), kStopped);
  EXPECT_THAT(out_, Not(HasSubstr(ended)));
}

TEST_F(RunVerbTest, PartsThatOtherHostsKeepArePutTogetherByConsolidate) {
  // A checkpoint with a file on another host, as with --checkpoint hosts.
  const run::CheckpointStore store(run_dir_);
  ASSERT_TRUE(store.begin(3));
  const run::WrittenFiles written{.model = {{"model.safetensors", "00000000000000aa"}},
                                  .held = {{"model.safetensors", {"elsewhere", "kept"}}}};
  const auto checkpoint =
      store.finish({.step = 3, .samples = 24, .global_batch = 8, .model_hash = "00000000000000aa"},
                   std::span(&written, 1));
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  ASSERT_EQ(call(words({"--adapt", "none"})), kDone) << err_;
  EXPECT_THAT(out_, HasSubstr("checkpoint " + *checkpoint +
                              "\nmodel      in parts, on their hosts: motley consolidate " +
                              run_dir_ + " --hosts\n"));
}

TEST_F(RunVerbTest, AnElasticRunSaysHowDevicesComeAndGo) {
  ASSERT_EQ(call(words({"--elastic", "--absent", "a:1"})), kDone) << err_;
  EXPECT_THAT(err_, ContainsRegex("devices may come \\(motley join [0-9a-f]+@127.0.0.1:"));
  EXPECT_THAT(err_, HasSubstr("and leave (motley leave " + run_dir_ + " DEVICE)\n"));
  ASSERT_THAT(workers_.jobs, SizeIs(1));
  ASSERT_TRUE(workers_.jobs[0].changes);
  EXPECT_TRUE(workers_.jobs[0].changes->is_elastic);
  // An absent device is reserved a process, but has no samples at first.
  EXPECT_THAT(workers_.jobs[0].devices, SizeIs(2));
  EXPECT_THAT(workers_.jobs[0].changes->absent, ElementsAre("a:1"));
  const std::string plan = read_file(run_dir_ + "/plan.json").value();
  EXPECT_THAT(plan, Not(HasSubstr("\"a:1\"")));
}

TEST_F(RunVerbTest, ARunGoesOnWithDevicesThatCameToIt) {
  std::filesystem::create_directories(run_dir_);
  const std::string joiner =
      "schema = \"motley.cluster/1\"\nname = \"one\"\n[[node]]\nname = \"n\"\n  [[node.device]]\n  "
      "kind = \"cpu\"\n";
  ASSERT_TRUE(write_file_atomic(run_dir_ + "/newcomers.json", control::print_joiners({joiner})));
  const Words flags = {"--planner", "split"};
  ASSERT_EQ(call(without_plan(flags, {"--elastic"})), kDone) << err_;
  ASSERT_THAT(workers_.jobs, SizeIs(1));
  ASSERT_THAT(workers_.jobs[0].devices, SizeIs(3));
  EXPECT_EQ(workers_.jobs[0].devices[2].name, "n:0");
  // A new run, or one that is not elastic, does not include it.
  for (const Words& more : {Words{"--elastic", "--resume", "never"}, Words{"--resume", "auto"}}) {
    ASSERT_EQ(call(without_plan(flags, more)), kDone) << err_;
    for (const run::WorkerDevice& device : workers_.jobs.back().devices)
      EXPECT_NE(device.name, "n:0");
  }
}

TEST_F(RunVerbTest, OfARunThatWasSlowedNoErrorIsKept) {
  ASSERT_EQ(call(words(under(R"("slow_downs": [{"device": "a:0", "from_s": 1, "factor": 2}])"))),
            kDone)
      << err_;
  EXPECT_THAT(workers_.jobs.back().devices[0].slow, SizeIs(1));
  const auto kept = [&] {
    return cost::ProfileStore::open(environment_["MOTLEY_PROFILES"])->predictions().value().size();
  };
  EXPECT_EQ(kept(), 0U);
  // The cause of the emulated speeds is unknown.
  ASSERT_EQ(call(words({"--enforce", "outside"})), kDone) << err_;
  EXPECT_EQ(kept(), 0U);
  workers_.outcome.end = run::JobEnd::kStopped;
  ASSERT_EQ(call(words()), kStopped) << err_;
  EXPECT_EQ(kept(), 0U);
  workers_.outcome.end = run::JobEnd::kFinished;
  ASSERT_EQ(call(words()), kDone) << err_;
  EXPECT_GT(kept(), 0U);
}

TEST_F(RunVerbTest, WorkersHoldLinksOrWhatIsOutsideDoes) {
  write_cluster(R"(schema = "motley.cluster/1"
name = "linked"
[[node]]
name = "a"
  [[node.device]]
  kind = "cpu"
  speed = 0.8
[[node]]
name = "b"
  [[node.device]]
  kind = "cpu"
  speed = 0.4
[[link]]
all = true
bandwidth = "10Gbps"
latency = "1ms"
)");
  const auto held = [&](const char* enforce) {
    EXPECT_EQ(call(words({"--enforce", enforce})), kDone) << err_;
    Json found = Json::array();
    const Json written = job();
    for (const Json& device : written.at("devices"))
      found.push_back({device.at("rate"), device.at("speed")});
    return found;
  };
  EXPECT_EQ(held("worker"), (Json{{1.25e9, 0.8}, {1.25e9, 0.4}}));
  EXPECT_EQ(held("speeds"), (Json{{nullptr, 0.8}, {nullptr, 0.4}}));
  EXPECT_EQ(held("outside"), (Json{{nullptr, 1.0}, {nullptr, 1.0}}));
  EXPECT_EQ(refused({"--enforce", "nothing"}),
            "2 --enforce: found 'nothing', wanted worker, speeds or outside [cli.enforce]");
  EXPECT_EQ(refused({"--resume", "yes"}),
            "2 --resume: found 'yes', wanted auto or never [cli.resume]");
  EXPECT_EQ(refused({"--checkpoint", "disk"}),
            "2 --checkpoint: found 'disk', wanted lead or hosts [cli.flags]");
}

TEST_F(RunVerbTest, NoOtherPlanIsWorthATrialOfOneDevice) {
  ASSERT_EQ(call(without_plan({"--exclude", "a:1"}, {"--adapt", "plan"})), kDone) << err_;
  EXPECT_THAT(err_, HasSubstr("no other plan is worth a trial\n"));
  EXPECT_FALSE(workers_.jobs.back().changes);
}

TEST_F(RunVerbTest, LearnedSplitsBeginWithAPlanThatSplitsTheBatch) {
  ASSERT_EQ(call(without_plan({}, {"--adapt", "split"})), kDone) << err_;
  EXPECT_THAT(err_, HasSubstr("8 samples a step, planner split"));
  EXPECT_TRUE(workers_.jobs.back().changes);
  EXPECT_FALSE(workers_.jobs.back().batches);
  ASSERT_EQ(call(without_plan({}, {"--adapt", "batch", "--resume", "never"})), kDone) << err_;
  ASSERT_TRUE(workers_.jobs.back().batches);
  EXPECT_EQ(workers_.jobs.back().batches->first, 8);
}

TEST_F(RunVerbTest, APageShowsTheRun) {
  ASSERT_EQ(call(words({"--serve"})), kDone) << err_;
  EXPECT_THAT(err_, HasSubstr("the run is shown at http://127.0.0.1:"));
}

/// Machines of a market: an owned one, a spot one, and an absent on-demand one.
class RentVerbTest : public RunVerbTest {
 protected:
  RentVerbTest() { write_cluster(cluster_text()); }
  static std::string cluster_text() {
    std::string text = "schema = \"motley.cluster/1\"\nname = \"four\"\n";
    for (const auto& [name, keys] : {std::pair("a", "zone = \"z-3\""),
                                     {"b", "spot = true\nzone = \"z-1\""},
                                     {"c", "spot = true\nzone = \"z-2\""},
                                     {"d", "zone = \"z-1\""}})
      text += fmt::format(
          "[[node]]\nname = \"{}\"\n{}\n  [[node.device]]\n  kind = \"cpu\"\n  speed = 0.3\n", name,
          keys);
    return text;
  }
  static std::string offer(const std::string& zone, double price, const std::string& keys = "") {
    return fmt::format(
        "[[offer]]\nkind = \"cpu\"\nzone = \"{}\"\nspeed = 0.3\nprice_per_hour = {}\n{}\n", zone,
        price, keys);
  }
  static std::string market(const std::vector<std::string>& offers) {
    std::string text = "schema = \"motley.market/1\"\nname = \"here\"\n";
    for (const std::string& each : offers) text += each;
    return text;
  }
  static std::vector<std::string> all_offers() {
    return {offer("z-3", 20), offer("z-1", 1, "spot = true"), offer("z-2", 0.5, "spot = true"),
            offer("z-1", 3)};
  }
  Words renting(const std::string& market_text, const Words& more) const {
    Words flags = {"--elastic", "--adapt",  "none",
                   "--absent",  "c:0",      "--absent",
                   "d:0",       "--market", write("market.toml", market_text)};
    flags.insert(flags.end(), more.begin(), more.end());
    return without_plan({"--planner", "equal"}, flags);
  }
};

TEST_F(RentVerbTest, SaysWhatIsWrong) {
  const std::string whole = market(all_offers());
  const auto wrong = [&](const std::string& text, const Words& flags) {
    return refusal(renting(text, flags));
  };
  EXPECT_EQ(wrong(whole, {"--budget", "3"}),
            "2 --market: until when must it be done? give --deadline, such as 8h [cli.deadline]");
  EXPECT_EQ(wrong(whole, {"--deadline", "0s"}),
            "2 --deadline: found 0s, wanted a time after the run's beginning [cli.deadline]");
  EXPECT_EQ(wrong(whole, {"--deadline", "soon"}),
            "2 --deadline: found 'soon', wanted a time such as 120s, 3ms, 100us [text.seconds]");
  EXPECT_EQ(wrong(whole, {"--deadline", "1h", "--budget", "0"}),
            "2 --budget: found 0, wanted more than 0 [cli.budget]");
  EXPECT_EQ(wrong(whole, {"--deadline", "1h", "--rent-policy", "greed"}),
            "2 no policy that rents is named 'greed', did you mean 'greedy'? [elastic.policy]");
  std::vector<std::string> offers = all_offers();
  offers[3] = "[[offer]]\nkind = \"cpu\"\nzone = \"z-1\"\nspeed = 0.3\n";
  EXPECT_EQ(wrong(market(offers), {"--deadline", "1h"}),
            "2 " + directory_.file("market.toml") +
                ":21: [[offer]] has no key 'price_per_hour' [market.missing-key]");
  offers = all_offers();
  offers.push_back("[[offer]]\nkind = \"k80\"\nzone = \"z-1\"\nprice_per_hour = 2\n");
  EXPECT_EQ(
      wrong(market(offers), {"--deadline", "1h"}),
      "2 offer 'k80 on demand z-1': no device of the cluster is of kind 'k80' [market.offer]");
  offers = all_offers();
  offers.erase(offers.begin() + 2);
  EXPECT_EQ(wrong(market(offers), {"--deadline", "1h"}),
            "2 node 'c': the market has no offer of cpu spot z-2; it has cpu on demand z-3, cpu "
            "spot z-1, cpu on demand z-1 [market.node]");
  EXPECT_THAT(workers_.timed, IsEmpty());
}

TEST_F(RentVerbTest, WhatGoesWithAMarketWantsOne) {
  EXPECT_EQ(refusal(without_plan({}, {"--deadline", "1h"})),
            "2 --deadline, --budget, --rent-policy and hooks say how to rent machines: give "
            "--market [cli.market]");
  const std::string file = write("market.toml", market(all_offers()));
  const Words rent = {"--market", file, "--deadline", "1h"};
  EXPECT_EQ(refusal(without_plan({}, rent)),
            "2 --market: rented machines go and come while the run trains: add --elastic "
            "[cli.market]");
  write_cluster(control::kTwoCpus);
  EXPECT_EQ(refusal(without_plan({"--elastic"}, rent)),
            "2 no [[node]] of the cluster says a zone, so none is rented; the market has cpu on "
            "demand z-3, cpu spot z-1, cpu spot z-2, cpu on demand z-1 [market.node]");
}

TEST_F(RentVerbTest, ARunSaysWhatItPaid) {
  ASSERT_EQ(call(renting(market(all_offers()), {"--deadline", "100h", "--budget", "50"})), kDone)
      << err_;
  EXPECT_THAT(out_, HasSubstr("rented     "));
  EXPECT_THAT(out_, HasSubstr(" paid of 50, "));
  EXPECT_THAT(out_, HasSubstr(" before the deadline\n"));
  const Json summary = parse_json(read_file(run_dir_ + "/summary.json").value(), "summary").value();
  EXPECT_EQ(summary.at("rented").at("asked"), 0);
}

TEST_F(RentVerbTest, CheckpointsAreAsFarApartAsTheMachinesHazardSays) {
  // All may be lost at once, as none is owned or on demand: 1e-4 losses a second each.
  std::string text = cluster_text();
  text.erase(text.find("[[node]]\nname = \"d\""));
  text.erase(text.find("[[node]]\nname = \"a\""),
             text.find("[[node]]\nname = \"b\"") - text.find("[[node]]\nname = \"a\""));
  write_cluster(text);
  const std::string file =
      write("market.toml", market({offer("z-1", 1, "spot = true\nlosses_per_hour = 0.36"),
                                   offer("z-2", 0.5, "spot = true\nlosses_per_hour = 0.36")}));
  const Words rented = {"--elastic",  "--adapt", "none",    "--market",  file,
                        "--deadline", "100h",    "--steps", "1000000000"};
  ASSERT_EQ(call(without_plan({"--planner", "equal"}, rented)), kDone) << err_;
  const std::int64_t every = workers_.jobs.back().checkpoint_every;
  EXPECT_GT(every, 0);
  EXPECT_THAT(err_,
              HasSubstr(fmt::format("a checkpoint each {} steps, as the machines' hazard says "
                                    "(--checkpoint-every)\n",
                                    every)));
  ASSERT_EQ(call(without_plan({"--planner", "equal", "--checkpoint-every", "7"}, rented)), kDone)
      << err_;
  EXPECT_EQ(workers_.jobs.back().checkpoint_every, 7);
  EXPECT_THAT(err_, Not(HasSubstr("hazard")));
}

/// The coordinator on another host is lost, and this host's agent has its state.
class TakeoverVerbTest : public RunVerbTest {};

TEST_F(TakeoverVerbTest, GoesOnWhereTheLeadWas) {
  ASSERT_EQ(call(words({"--elastic", "--adapt", "none"})), kDone) << err_;
  // An agent keeps a job's files and the coordinator's memory.
  const std::string scratch = directory_.file("agent/scratch");
  std::filesystem::create_directories(scratch + "/run");
  std::filesystem::copy(run_dir_ + "/job.json", scratch + "/run/job.json");
  std::filesystem::copy(run_dir_ + "/log.jsonl", scratch + "/log.jsonl");
  run::TakeoverState inherited{.host = "h", .scratch = scratch, .processes = {{0, 0}}};
  inherited.memory = {
      {"name", "run-1"},
      {"arguments", Words{"run"}},
      {"host", "gone"},
      {"cluster", read_file(cluster_).value()},
      {"taken_for", {"cpu", "cpu"}},
      {"plans",
       {{{"number", 0}, {"plan", read_file(run_dir_ + "/plan.json").value()}, {"lr_factor", 1.0}}}},
      {"devices", {{{"name", "a:0"}, {"host", ""}}, {{"name", "a:1"}, {"host", ""}}}},
      {"living", {"a:0"}},
      {"saved_step", 0},
      {"policy", nullptr},
      {"epoch", 0},
      {"newcomers", Json::array()}};
  workers_.inherited = inherited;
  workers_.jobs.clear();
  // The lost coordinator's command; its files are on its machine.
  ASSERT_EQ(call({"run", "-m", "gone.motley", "-C", "gone.toml", "--global-batch", "8", "--data",
                  "gone.npz", "--steps", "9", "--elastic", "--adapt", "none", "--trace-steps", "0",
                  "--succeed", "left.json"}),
            kDone)
      << err_;
  ASSERT_THAT(workers_.jobs, SizeIs(1));
  const run::Job& job = workers_.jobs[0];
  EXPECT_EQ(job.run_dir, directory_.file("agent/led/run-1"));
  EXPECT_EQ(job.model_path, model_);
  EXPECT_EQ(job.data.path, data_);
  EXPECT_EQ(job.steps, 3);
  EXPECT_THAT(job.changes->absent, ElementsAre("a:1"));
}

TEST_F(TakeoverVerbTest, WhereNothingWasLeftItSaysSo) {
  EXPECT_EQ(refusal({"run", "--succeed", "left.json", "--elastic"}), "2 there is none [test]");
}

}  // namespace
}  // namespace motley::cli
