#include "motley/control/survey/local_workers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "motley/base/file.h"
#include "motley/base/json_fields.h"
#include "motley/control/planning/planning.h"
#include "motley/control/run_directory.h"
#include "motley/program/program_text.h"
#include "motley/testing/small_inputs.h"

namespace motley::control {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

/// Replaces motley-worker by a shell script: $1 is the verb, $2 the job, $4 the rank.
class LocalWorkersTest : public ::testing::Test {
 protected:
  void worker(const std::string& script) const {
    std::ofstream(path_) << "#!/bin/sh\n" << script << "\n";
    std::filesystem::permissions(path_, std::filesystem::perms::owner_all);
  }
  run::Job job() const {
    run::Job job;
    job.run_dir = directory_.file("run");
    job.timeout = Seconds(5);
    job.devices = {{.name = "a:0", .kind = "cpu"}, {.name = "b:0", .kind = "cpu"}};
    std::filesystem::create_directories(job.run_dir);
    EXPECT_TRUE(write_file_atomic(RunDirectory{job.run_dir}.job(), run::job_to_json(job).dump()));
    return job;
  }
  static TimedProgram timed_program() {
    const Inputs inputs = small_inputs(kTwoCpus, 8);
    const plan::Plan plan{.model_hash = inputs.model->hash,
                          .cluster_hash = cluster::cluster_hash(inputs.cluster),
                          .global_batch = 8,
                          .replicas = plan::make_replicas(inputs.devices, {5, 3})};
    return {lower_plan(inputs, plan)->program, 1};
  }

  TemporaryDirectory directory_;
  const std::string path_ = directory_.file("worker");
  LocalWorkers workers_{path_};
};

TEST_F(LocalWorkersTest, AMissingWorkerIsNamedWithWhatMakesIt) {
  const auto version = workers_.torch_version();
  ASSERT_FALSE(version);
  EXPECT_EQ(version.error().code, "worker.missing");
  EXPECT_EQ(version.error().message,
            path_ +
                ": not there; it trains and measures: build it with make, or install the "
                "package motley-worker-2-15 for PyTorch 2.15, ...");
}

TEST_F(LocalWorkersTest, ATaskIsAJobWithItsProgramsWritten) {
  const run::OpTime time{.key = "aten::mm", .median = Seconds(0.5), .spread = 0.25, .samples = 7};
  worker("cp $2 " + directory_.file("seen.json") + "; cp $(dirname $2)/0.txt " +
         directory_.file("program.txt") + "; echo '" + fields_to_json(run::OpTimes{{time}}).dump() +
         "'");
  TimingTask task{.what = TimingTask::What::kWholeSteps,
                  .device = {.name = "a:0", .kind = "cpu", .threads = 2},
                  .programs = {timed_program()},
                  .per_program = Seconds(3)};
  task.device.speed = 0.5;
  const auto times = workers_.time_programs({task});
  ASSERT_TRUE(times) << times.error().message;
  ASSERT_THAT(*times, ElementsAre(SizeIs(1)));
  EXPECT_EQ((*times)[0][0].key, "aten::mm");
  EXPECT_EQ((*times)[0][0].median, Seconds(0.5));
  EXPECT_EQ((*times)[0][0].samples, 7);
  const Json seen = parse_json(read_file(directory_.file("seen.json")).value(), "seen").value();
  const run::ProfileJob job = fields_from_json<run::ProfileJob>(seen, "seen").value();
  EXPECT_TRUE(job.whole_steps);
  EXPECT_FALSE(job.linger);  // it has no neighbours
  EXPECT_EQ(job.seconds_per_program, 3);
  EXPECT_THAT(job.ranks, ElementsAre(1));
  EXPECT_EQ(job.device, task.device);
  EXPECT_EQ(read_file(directory_.file("program.txt")).value(),
            program::print_program(*task.programs[0].program));
  EXPECT_FALSE(std::filesystem::exists(job.programs.at(0)));
}

TEST_F(LocalWorkersTest, TasksAtTheSameTimeKeepEachOtherCompany) {
  // A worker answers once it has seen the other's directory, and runs until it is killed.
  worker(R"(here=$(dirname $2); touch $here/started
for i in $(seq 200); do
  [ $(ls $here/../*/started | wc -l) = 2 ] && break; sleep 0.02
done
grep -q '"linger":true' $2 || exit 1
echo '{"ops":[]}'; sleep 30)");
  const TimingTask task{.device = {.name = "a:0", .kind = "cpu"}};
  const auto times = workers_.time_programs({task, task});
  ASSERT_TRUE(times) << times.error().message;
  EXPECT_THAT(*times, SizeIs(2));
}

TEST_F(LocalWorkersTest, WhatAWorkerSaysWentWrongIsTheError) {
  worker(R"(echo '{"event":"error","rank":0,"kind":"usage","code":"a.b","message":"no"}'; exit 2)");
  const auto times = workers_.time_programs({TimingTask{}});
  ASSERT_FALSE(times);
  EXPECT_EQ(times.error(), (Error{ErrorKind::kUsage, "a.b", "no"}));
}

TEST_F(LocalWorkersTest, ExchangesAreTimedByTheFirstRank) {
  const run::MeasuredGroup times{
      .backend = "gloo",
      .collectives = {{"motley::all_reduce", "gloo", 2, Bytes(8), Seconds(0.5), 0, 3}}};
  Json event = fields_to_json(times);
  event["event"] = "collectives";
  event["rank"] = 0;
  worker(
      "[ $1 = collectives ] || exit 1\n[ $4 = 0 ] && echo '" + event.dump() +
      "'\necho \"{\\\"event\\\":\\\"done\\\",\\\"rank\\\":$4,\\\"reason\\\":\\\"finished\\\"}\"");
  const auto timed = workers_.time_exchanges(job());
  ASSERT_TRUE(timed) << timed.error().message;
  ASSERT_THAT(timed->collectives, SizeIs(1));
  EXPECT_EQ(timed->collectives[0].median, Seconds(0.5));
}

TEST_F(LocalWorkersTest, AWishToStopReachesTheWorkersAsSigterm) {
  worker(R"(trap 'echo "{\"event\":\"done\",\"rank\":$4,\"reason\":\"stopped\"}"; exit 75' TERM
echo "{\"event\":\"step\",\"rank\":$4,\"step\":0}"
for i in $(seq 500); do sleep 0.02; done)");
  int events = 0, steps = 0;
  const run::JobOutcome outcome = workers_.train(
      job(),
      [&](const run::WorkerEvent& event) {
        ++events;
        if (event.event == "step") ++steps;
        return steps == 2 ? Wish::kStop : Wish::kGoOn;  // both have reported the effect of SIGTERM
      },
      {}, {});
  EXPECT_EQ(outcome.end, run::JobEnd::kStopped) << outcome.error.message;
  EXPECT_THAT(outcome.exit_codes, ElementsAre(75, 75));
  EXPECT_EQ(events, 4);  // two steps and two ends
}

}  // namespace
}  // namespace motley::control
