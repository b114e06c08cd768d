#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "motley/cli/context/verb.h"
#include "motley/cost/measured/profile_store.h"
#include "motley/testing/verb_calls.h"

namespace motley::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(VerbTest, ProfileSaysHowMuchItMeasured) {
  ASSERT_EQ(call_with_inputs("profile", {"--json"}), kDone) << err_;
  EXPECT_GT(json().at("entries"), 0);
  EXPECT_EQ(json().at("spread"), 0);
  EXPECT_EQ(json().at("store"), environment_["MOTLEY_PROFILES"]);
  EXPECT_THAT(json().at("drifted"), IsEmpty());
}

TEST_F(VerbTest, ProfileEachNamesWhatIsSlowerThanItsLike) {
  workers_.slowness = {{"a:1", 2.0}};
  ASSERT_EQ(call_with_inputs("profile", {"--each", "--json"}), kDone) << err_;
  EXPECT_THAT(json().at("compared"), SizeIs(2));
  const Json wanted = {{"device", "a:1"}, {"host", "a"}, {"ratio", 2.0}, {"limit", 1.1}};
  EXPECT_EQ(json().at("slower"), Json::array({wanted}));
  ASSERT_EQ(call_with_inputs("profile", {"--each"}), kDone) << err_;
  EXPECT_THAT(out_, HasSubstr("a:1 on host a takes 2.00 times as long as its like, above 1.10, "
                              "which counts as slower; plans take it for one of them until its "
                              "model is its own in the cluster file: model = \"cpu (slow)\"\n"));
  EXPECT_EQ(call_with_inputs("profile", {"--each", "--from-run", "run"}), kUsage);
  EXPECT_THAT(err_, HasSubstr("--each measures and --from-run does not: give one of them"));
}

TEST_F(VerbTest, ProbeOfHostsSaysWhatTheyAreAndWhatJoinsThem) {
  control::FoundHosts& found = workers_.found;
  found.hosts = {"a.example", "b.example"};
  for (const char* name : {"a", "b"}) {
    found.facts.push_back({.motley = "1.2.3",
                           .torch = "2.15",
                           .processor = "Chip",
                           .instructions = "avx2",
                           .cores = 8});
    cluster::Cluster own = cluster::parse_cluster(control::kTwoCpus, "own").value();
    own.nodes[0].name = name;
    found.clusters.push_back(std::move(own));
  }
  found.facts[1].clock_ahead = Seconds(3);
  found.wires = {.hosts = 2,
                 .alone = {{{0, 1}, Seconds(1e-4), BytesPerSecond(1.25e8)},
                           {{1, 0}, Seconds(1e-4), BytesPerSecond(1.25e8)}}};
  ASSERT_EQ(call({"probe", "--hosts", "a.example,b.example", "--json"}), kDone) << err_;
  EXPECT_THAT(json().at("devices"), SizeIs(4));
  const Json link = {{"between", Json::array()},
                     {"bandwidth_bytes_per_s", 1.25e8},
                     {"latency_s", json().at("links").at(0).at("latency_s")},
                     {"capacity_bytes_per_s", nullptr}};
  EXPECT_EQ(json().at("links"), Json::array({link}));
  EXPECT_NEAR(link.at("latency_s"), 1e-4, 1e-12);
  const Json host = {{"node", "b"},     {"host", "b.example"},  {"motley", "1.2.3"},
                     {"torch", "2.15"}, {"processor", "Chip"},  {"instructions", "avx2"},
                     {"cores", 8},      {"clock_ahead_s", 3.0}, {"bandwidth_bytes_per_s", nullptr}};
  EXPECT_EQ(json().at("hosts").at(1), host);
  EXPECT_THAT(err_, HasSubstr("b.example: its clock is 3.0 s ahead of this one's"));
}

TEST_F(VerbTest, SamplesToEvaluateAreOfAScript) {
  EXPECT_EQ(call_run({"--eval-samples", "8"}), kUsage);
  EXPECT_THAT(err_, HasSubstr("--eval-samples: wanted a number above 0, with --prepare"));
  EXPECT_EQ(call_run({"--prepare", "--eval-samples", "-8"}), kUsage);
}

TEST_F(VerbTest, PlanHasTheKeysThatScriptsRelyOn) {
  ASSERT_EQ(call_with_inputs("plan", {"--json"}), kDone) << err_;
  for (const char* key :
       {"planner", "outcome", "predicted_step_s", "lower_bound_s", "peak_bytes", "batch_split",
        "idle", "baselines", "considered", "elapsed_s", "why", "predicted_step_interval_s",
        "interval_basis", "times_from", "breakdown", "peak_interval_bytes", "memory"})
    EXPECT_TRUE(json().contains(key)) << key;
  EXPECT_EQ(json().at("elapsed_s"), 1);  // a tick of the fake clock
  std::int64_t samples = 0;
  const Json split = json().at("batch_split");
  for (const auto& [device, count] : split.items()) samples += count.get<std::int64_t>();
  EXPECT_EQ(samples, 8);
}

TEST_F(VerbTest, MemoryIsTheSumOfItsParts) {
  ASSERT_EQ(call_with_inputs("plan", {"--batch-split", "5,3", "--json"}), kDone) << err_;
  const Json object = json();
  ASSERT_THAT(object.at("memory"), SizeIs(2));
  for (const auto& [device, memory] : object.at("memory").items()) {
    std::int64_t sum = 0;
    for (const auto& [name, bytes] : memory.items())
      if (name.ends_with("_bytes")) sum += bytes.get<std::int64_t>();
    EXPECT_EQ(sum, object.at("peak_bytes").at(device));
  }
}

TEST_F(VerbTest, APhaseIsPrintedAloneAndOnce) {
  ASSERT_EQ(call_with_inputs("plan", {"--print", "synth"}), kDone);
  EXPECT_THAT(out_, ::testing::StartsWith("motley.program/1"));
  EXPECT_EQ(out_.find("motley.program/1", 1), std::string::npos);
  EXPECT_THAT(out_, ::testing::Not(HasSubstr("device     samples")));
}

TEST_F(VerbTest, NothingIsDoneBehindThePhaseToStopAfter) {
  ASSERT_EQ(call_with_inputs("plan", {"--stop-after", "load", "--print", "load"}), kDone);
  EXPECT_THAT(out_, ::testing::StartsWith("motley.graph/1"));
  EXPECT_THAT(workers_.timed, IsEmpty());
  EXPECT_EQ(err_, "");
  EXPECT_EQ(call_with_inputs("plan", {"--print", "serch"}), kUsage);
  EXPECT_THAT(err_, HasSubstr("--print: no phase is named 'serch', did you mean 'search'?"));
}

TEST_F(VerbTest, RefusedPricesAreExit2AndNameTheCommand) {
  EXPECT_EQ(call_with_inputs("plan", {"--profile", "never"}), kUsage);
  EXPECT_THAT(err_, HasSubstr("motley profile"));
  EXPECT_THAT(workers_.timed, IsEmpty());
}

TEST_F(VerbTest, TooLittleMemoryIsExit3AndAnAnswerInJson) {
  std::ofstream(cluster_) << "schema = \"motley.cluster/1\"\nname = \"small\"\n[[node]]\nname = "
                             "\"a\"\n  [[node.device]]\n  kind = \"cpu\"\n  memory = \"1KiB\"\n";
  EXPECT_EQ(call_with_inputs("plan"), kInfeasible);
  EXPECT_THAT(err_, HasSubstr("no feasible plan"));
  EXPECT_EQ(call_with_inputs("plan", {"--json"}), kInfeasible);
  EXPECT_EQ(json().at("outcome"), "infeasible");
  EXPECT_EQ(json().at("predicted_step_s"), nullptr);
}

TEST_F(VerbTest, APlanForAnotherClusterIsExit4) {
  const std::string plan = directory_.file("plan.json");
  ASSERT_EQ(call_with_inputs("plan", {"-o", plan}), kDone);
  std::ofstream(cluster_, std::ios::app) << "  threads = 2\n";
  EXPECT_EQ(call({"simulate", "--plan", plan, "-m", model_, "-C", cluster_}), kStale);
  EXPECT_THAT(err_, HasSubstr("plan again"));
}

TEST_F(VerbTest, SimulateTakesThePlansBatch) {
  const std::string plan = directory_.file("plan.json");
  ASSERT_EQ(call_with_inputs("plan", {"-o", plan, "--batch-split", "5,3"}), kDone);
  ASSERT_EQ(call({"simulate", "--plan", plan, "-m", model_, "-C", cluster_, "--json"}), kDone)
      << err_;
  EXPECT_THAT(json().at("busy_share"), SizeIs(2));
  EXPECT_GT(json().at("step_s"), 0);
}

TEST_F(VerbTest, RunReportsWhatTheWorkersDid) {
  ASSERT_EQ(call_run({"--batch-split", "5,3", "--json"}), kDone) << err_;
  EXPECT_EQ(json().at("losses"), (Json{2.0, 1.5, 1.0}));
  EXPECT_EQ(json().at("step_s_median"), 0.5);
  EXPECT_EQ(json().at("devices").at(1).at("samples"), 3);
  EXPECT_EQ(json().at("stopped"), false);
  EXPECT_GT(json().at("predicted_step_s"), 0);
  EXPECT_THAT(err_, HasSubstr("samples a step, planner manual"));
}

TEST_F(VerbTest, TheRunsErrorIsKeptForLaterIntervals) {
  ASSERT_EQ(call_run(), kDone) << err_;
  const auto store = cost::ProfileStore::open(environment_["MOTLEY_PROFILES"]).value();
  const auto kept = store.predictions().value();
  ASSERT_FALSE(kept.empty());
  EXPECT_EQ(kept[0].measured, 0.5);
}

TEST_F(VerbTest, AStoppedRunIsExit75) {
  workers_.outcome.end = run::JobEnd::kStopped;
  EXPECT_EQ(call_run(), kStopped);
  EXPECT_THAT(out_, ::testing::Not(HasSubstr("model.safetensors")));
}

TEST_F(VerbTest, AWorkerThatDiesIsExit1AndAnInterruptedRunExit130) {
  workers_.outcome = {.end = run::JobEnd::kFailed,
                      .error = {ErrorKind::kRuntime, "run.worker-lost", "rank 1 (a:1) was killed"}};
  EXPECT_EQ(call_run(), kRuntimeFailure);
  EXPECT_THAT(err_, HasSubstr("motley: rank 1 (a:1) was killed [run.worker-lost]\n"));
  workers_.outcome.error.code = "run.interrupted";
  EXPECT_EQ(call_run(), kInterrupted);
}

TEST_F(VerbTest, StopAfterSynthLeavesTheRunDirectoryAndStartsNothing) {
  EXPECT_EQ(call_run({"--stop-after", "synth"}), kDone);
  EXPECT_TRUE(std::filesystem::exists(run_dir_ + "/program.txt"));
  EXPECT_THAT(workers_.jobs, IsEmpty());
}

TEST_F(VerbTest, RankZeroOfALauncherTellsTheOthersHowItEnded) {
  environment_.insert(
      {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "1"}});
  EXPECT_EQ(call_run(), kDone);
  EXPECT_THAT(workers_.jobs, SizeIs(1));
  EXPECT_EQ(workers_.ended, kDone);
  workers_.outcome.end = run::JobEnd::kStopped;
  EXPECT_EQ(call_run(), kStopped);
  EXPECT_EQ(workers_.ended, kStopped);
}

TEST_F(VerbTest, VerifyTrainsForEpochsOrTwentySteps) {
  // Nothing is compared, because fake workers leave no model.
  const std::vector<std::string> flags = {"--data", data_, "--run-dir", run_dir_};
  EXPECT_EQ(call_with_inputs("verify", flags), kUsage);
  ASSERT_FALSE(workers_.jobs.empty()) << err_;
  EXPECT_EQ(workers_.jobs[0].steps, 20);
  workers_.jobs.clear();
  EXPECT_EQ(call_with_inputs("verify", {"--data", data_, "--run-dir", run_dir_, "--epochs", "6"}),
            kUsage);
  ASSERT_FALSE(workers_.jobs.empty()) << err_;
  EXPECT_EQ(workers_.jobs[0].steps, 3);  // six passes of four samples are three steps of eight
}

TEST_F(VerbTest, DoctorFindsThatWorkersAreMissing) {
  EXPECT_EQ(call({"doctor", "-m", model_, "-C", cluster_}), kDone) << out_;
  EXPECT_THAT(out_, HasSubstr("motley-worker runs PyTorch 2.15  [worker.version]"));
  workers_.torch = usage_error("worker.missing", "w: not there");
  EXPECT_EQ(call({"doctor"}), kCheckFailed);
  EXPECT_THAT(out_, HasSubstr("error    w: not there  [worker.missing]"));
}

TEST(AllVerbs, EachHasANameHelpAndFlagsWithHelp) {
  std::set<std::string> names;
  for (const Verb& verb : all_verbs()) {
    EXPECT_TRUE(names.insert(verb.name).second) << verb.name;
    EXPECT_NE(verb.help, "") << verb.name;
    for (const Flag& flag : verb.flags) EXPECT_NE(flag.help, "") << verb.name << flag.names;
  }
}

}  // namespace
}  // namespace motley::cli
