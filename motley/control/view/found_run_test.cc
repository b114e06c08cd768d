#include "motley/control/view/found_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/base/file.h"
#include "motley/control/view/report_parts.h"
#include "motley/control/view/run_report.h"
#include "motley/run/hosts/status.h"
#include "motley/testing/small_inputs.h"

namespace motley::control {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class FoundRunTest : public ::testing::Test {
 protected:
  void SetUp() override {
    run::Job job;
    job.run_dir = directory_.path;
    job.program_path = directory_.program();
    job.steps = 20;
    job.devices = {run::WorkerDevice{.name = "a:0", .kind = "cpu"},
                   run::WorkerDevice{.name = "b:0", .kind = "cpu"}};
    write(directory_.job(), run::job_to_json(job).dump());
  }
  static void write(const std::string& path, const std::string& text) {
    ASSERT_TRUE(write_file_atomic(path, text));
  }
  void leave_rank(int rank, std::int64_t step) {
    const auto file = run::StatusFile::create(directory_.path, rank);
    file->record().step = step;
    file->record().pid = 999999999;
  }
  FoundRun find() { return find_run(directory_.path).value(); }

  TemporaryDirectory place_;
  RunDirectory directory_{place_.file("")};
};

TEST_F(FoundRunTest, AnyFolderIsNoRun) {
  EXPECT_EQ(find_run("/nowhere").error().code, "cli.not-a-run");
}

TEST_F(FoundRunTest, IsPreparedUntilSomethingStarts) {
  EXPECT_EQ(find().state, RunState::kPrepared);
  EXPECT_EQ(RunReporter(find()).tell().verdict, "Prepared: nothing has started yet.");
}

TEST_F(FoundRunTest, RunsWhileWhoLeadsItLives) {
  ASSERT_TRUE(write_start(directory_, {"run", "-m", "my model"}));
  const FoundRun run = find();
  EXPECT_EQ(run.state, RunState::kRunning);
  EXPECT_EQ(RunReporter(run).tell().command, "motley run -m 'my model'");
}

TEST_F(FoundRunTest, WhatWasKilledLeavesNoWordButWhereItsRanksWere) {
  write(directory_.start(), R"({"arguments": ["run"], "pid": 999999999})");
  leave_rank(0, 7);
  write(directory_.log(), print_logged_step(0, {.loss = 2, .step_s = 0.5}) + "\n");
  const FoundRun run = find();
  EXPECT_EQ(run.state, RunState::kEnded);
  ASSERT_THAT(run.ranks, SizeIs(2));
  EXPECT_EQ(run.ranks[0].step, 7);
  EXPECT_FALSE(run.ranks[0].is_running);
  EXPECT_FALSE(run.ranks[1].step);
  const report::ReportData report_data = RunReporter(run).tell();
  EXPECT_EQ(report_data.verdict,
            "Ended after 1 of 20 steps on 2 devices: its processes are gone and left no word: they "
            "were killed, or the machine went down.");
  const Json json = run_to_json(run, report_data);
  EXPECT_EQ(json.at("state"), "ended");
  EXPECT_EQ(json.at("losses"), Json({2.0}));
  EXPECT_EQ(json.at("ranks").at(0).at("step"), 7);
}

TEST_F(FoundRunTest, AFailureSaysWhy) {
  ASSERT_TRUE(write_start(directory_, {}));
  ASSERT_TRUE(write_failure(
      directory_, {.code = "run.worker-lost", .message = "rank 1 (b:0) was killed by signal 9"}));
  EXPECT_EQ(RunReporter(find()).tell().verdict,
            "Failed after 0 of 20 steps on 2 devices: rank 1 (b:0) was killed by signal 9");
}

TEST_F(FoundRunTest, AStoppedRunIsNoFinishedOne) {
  write(directory_.summary(), R"({"steps": 3, "stopped": true})");
  EXPECT_EQ(find().state, RunState::kStopped);
  write(directory_.summary(), R"({"steps": 3})");
  EXPECT_EQ(find().state, RunState::kFinished);
}

TEST_F(FoundRunTest, DamagedFilesAreLeftOutWithANote) {
  write(directory_.summary(), R"({"steps": 3, )");
  write(directory_.predicted(), "motley.trace/1\nsource pre");
  write(directory_.start(), "[]");
  const FoundRun run = find();
  EXPECT_EQ(run.state, RunState::kPrepared);
  EXPECT_THAT(run.notes, SizeIs(3));
  EXPECT_THAT(RunReporter(run).tell().remarks, ::testing::Contains(HasSubstr("start.json: is no")));
}

class ScriptRunTest : public ::testing::Test {
 protected:
  void SetUp() override {
    write(directory_.script(), R"({"schema": "motley.script/1", "devices": ["a:0", "b:0"]})");
    write(directory_.start(), R"({"arguments": ["python", "train.py", "a b"], "pid": 999999999})");
    write(
        directory_.log(),
        R"({"step": 0, "loss": null, "step_s": 1, "samples": [8, 8], "compute_s": [], "peak_bytes": [5, 6]})"
        "\n"
        R"({"step": 1, "loss": 2.5, "step_s": 0.1, "samples": [11, 5], "compute_s": [0.04, 0.1], "peak_bytes": [5, 6]})"
        "\n");
  }
  static void write(const std::string& path, const std::string& text) {
    ASSERT_TRUE(write_file_atomic(path, text));
  }

  TemporaryDirectory place_;
  RunDirectory directory_{place_.file("")};
};

TEST_F(ScriptRunTest, ItsLogSaysWhatTheRanksTook) {
  const FoundRun run = find_run(directory_.path).value();
  EXPECT_TRUE(run.is_script);
  const report::ReportData report_data = RunReporter(run).tell();
  EXPECT_EQ(report_data.verdict,
            "Ended after 2 steps on 2 devices: its processes are gone and left no word: they were "
            "killed, or the machine went down.");
  EXPECT_EQ(report_data.command, "python train.py 'a b'");
  EXPECT_THAT(report_data.remarks, SizeIs(0));
  EXPECT_THAT(report_data.ranks, SizeIs(0));
  EXPECT_THAT(report_data.samples, ElementsAre(std::pair("a:0", 11), std::pair("b:0", 5)));
  EXPECT_EQ(report::waiting_sentence(report_data),
            "a:0 waits longest: 60 ms of each step (60 %) for b:0.");
  ASSERT_THAT(report_data.memory, SizeIs(2));
  EXPECT_EQ(report_data.memory[1].measured, Bytes(6));
  ASSERT_THAT(report_data.curves, SizeIs(2));
  EXPECT_THAT(report_data.curves[0].points, ElementsAre(std::pair(1, 2.5)));
  EXPECT_EQ(run_to_json(run, report_data).at("losses").dump(), "[null,2.5]");
}

TEST_F(ScriptRunTest, AnEndIsTold) {
  write(directory_.summary(), R"({"steps": 2, "losses": [null, 2.5], "stopped": false})");
  const FoundRun finished = find_run(directory_.path).value();
  EXPECT_EQ(finished.state, RunState::kFinished);
  EXPECT_EQ(RunReporter(finished).tell().verdict,
            "Finished: 2 steps on 2 devices, 100 ms a step. a:0 waits longest: 60 ms of each step "
            "(60 %) for b:0.");
  write(directory_.summary(), R"({"steps": 2, "stopped": true})");
  EXPECT_EQ(find_run(directory_.path)->how, "told to stop");
}

TEST_F(ScriptRunTest, ADamagedOneIsSaid) {
  write(directory_.script(), R"({"schema": "motley.script/9", "devices": []})");
  EXPECT_EQ(find_run(directory_.path).error().code, "cli.script");
}

TEST(PrintCommand, QuotesWhatAShellWouldTakeApart) {
  EXPECT_EQ(print_command({"run", "--data", "a b", "it's", ""}),
            R"(run --data 'a b' 'it'\''s' '')");
}

TEST(LinkLoads, ARingOfThreeSendsTwiceTwoThirds) {
  // Each of three nodes all-reduces 3000 bytes: its ring sends 2 * 2/3 of them out of the node.
  const cluster::Cluster cluster =
      cluster::parse_cluster(
          "schema = \"motley.cluster/1\"\nname = \"x\"\n"
          "[[node]]\nname = \"a\"\n[[node.device]]\nkind = \"cpu\"\n"
          "[[node]]\nname = \"b\"\n[[node.device]]\nkind = \"cpu\"\n"
          "[[node]]\nname = \"c\"\n[[node.device]]\nkind = \"cpu\"\n"
          "[[link]]\nall = true\nbandwidth = \"1Gbps\"\nlatency = \"1us\"\n",
          "x")
          .value();
  program::Program program;
  program.groups = {{{Rank(0), Rank(1), Rank(2)}}};
  trace::Trace trace;
  for (const char* name : {"a:0", "b:0", "c:0"}) {
    program::DeviceProgram device{.device = name};
    device.buffers = {{.dtype = DType::kF32, .shape = {750}}};
    program::Instruction sum{.lane = Lane::kTransfer, .op = "motley::all_reduce"};
    sum.arguments = {program::Argument{BufferId(0)}};
    sum.group = GroupId(0);
    device.instructions = {sum};
    program.devices.push_back(device);
    const int at = static_cast<int>(trace.devices.size());
    trace.devices.push_back(name);
    trace.names.push_back({});
    trace.names.back().push_back("motley::all_reduce");
    trace.steps.push_back({at, 0, 0, 100, 0});
    trace.intervals.push_back({at, Lane::kTransfer, 0, InstructionId(0), 60, 85, 3000});
  }
  const auto loads = find_link_loads(program, cluster, trace);
  ASSERT_THAT(loads, SizeIs(6));
  for (const report::LinkLoad& each : loads) {
    EXPECT_EQ(each.bytes.value, 4000) << each.name;
    EXPECT_DOUBLE_EQ(each.busy_share, 0.25) << each.name;
  }
}

}  // namespace
}  // namespace motley::control
