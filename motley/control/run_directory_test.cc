#include "motley/control/run_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/testing/small_inputs.h"

namespace motley::control {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class RunDirectoryTest : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    ASSERT_TRUE(write_file_atomic(path, text));
  }
  void write_job() const {
    run::Job job;
    job.devices = {{.name = "a:0", .kind = "cpu"}, {.name = "b:0", .kind = "cpu"}};
    write(directory_.job(), run::job_to_json(job).dump());
  }
  void write_trace(std::size_t rank, const std::string& device) const {
    trace::Trace trace{.source = trace::Source::kMeasured, .devices = {device}};
    trace.names.resize(1);
    trace.steps.push_back({.step = 4, .begin = 0, .end = 1000});
    write(directory_.measured(rank), trace::print_trace(trace));
  }

  TemporaryDirectory temporary_;
  RunDirectory directory_{temporary_.file("run")};
};

TEST_F(RunDirectoryTest, AStepIsReadAsItWasLogged) {
  const LoggedStep logged{.loss = 0.125,
                          .lr = 0.01,
                          .gradient_norm = 2.5,
                          .step_s = 0.5,
                          .compute_s = {0.25, 0.375},
                          .peak_bytes = {10, 20}};
  write(directory_.log(), print_logged_step(7, logged) + "\n");
  const auto log = read_log(directory_).value().steps;
  ASSERT_THAT(log, SizeIs(1));
  EXPECT_EQ(log.at(7).loss, 0.125);
  EXPECT_EQ(log.at(7).lr, 0.01);
  EXPECT_EQ(log.at(7).gradient_norm, 2.5);
  EXPECT_EQ(log.at(7).step_s, 0.5);
  EXPECT_THAT(log.at(7).compute_s, ElementsAre(0.25, 0.375));
  EXPECT_THAT(log.at(7).peak_bytes, ElementsAre(10, 20));
}

TEST_F(RunDirectoryTest, OfAStepDoneAgainTheLastCounts) {
  write(directory_.log(), print_logged_step(0, {.loss = 1}) + "\n" +
                              print_logged_step(1, {.loss = 2}) + "\n" +
                              print_logged_step(1, {.loss = 3}) + "\n");
  const auto log = read_log(directory_).value().steps;
  EXPECT_THAT(log, SizeIs(2));
  EXPECT_EQ(log.at(1).loss, 3);
}

TEST_F(RunDirectoryTest, AHalfWrittenLineIsSkipped) {
  const std::string line = print_logged_step(1, {.loss = 2});
  write(directory_.log(),
        print_logged_step(0, {.loss = 1}) + "\n" + line.substr(0, line.size() / 2));
  EXPECT_THAT(read_log(directory_).value().steps, SizeIs(1));
}

TEST_F(RunDirectoryTest, ARunThatHasNotBegunHasNoSteps) {
  EXPECT_THAT(read_log(directory_).value().steps, IsEmpty());
}

TEST_F(RunDirectoryTest, TheRanksTracesBecomeOne) {
  write_trace(0, "a:0");
  write_trace(1, "b:0");
  const trace::Trace merged = read_measured_trace(directory_, 2).value();
  EXPECT_THAT(merged.devices, ElementsAre("a:0", "b:0"));
  ASSERT_THAT(merged.steps, SizeIs(2));
  EXPECT_EQ(merged.steps[0].device, 0);
  EXPECT_EQ(merged.steps[1].device, 1);
}

TEST_F(RunDirectoryTest, AnyFolderIsNoRun) {
  const auto run = read_run("/nowhere");
  ASSERT_FALSE(run);
  EXPECT_EQ(run.error().code, "cli.not-a-run");
  EXPECT_THAT(run.error().message, HasSubstr("/nowhere: is no run directory ("));
}

TEST_F(RunDirectoryTest, ARunWithoutSummaryHasNotFinished) {
  write_job();
  const auto run = read_run(directory_.path);
  ASSERT_FALSE(run);
  EXPECT_EQ(
      run.error().message,
      directory_.path + ": the run has not finished yet; run the same command again to finish it");
}

TEST_F(RunDirectoryTest, AFinishedRunMayHaveNoPrediction) {
  write_job();
  write(directory_.summary(), R"({"steps": 5})");
  write_trace(0, "a:0");
  write_trace(1, "b:0");
  FinishedRun run = read_run(directory_.path).value();
  EXPECT_EQ(run.summary.at("steps"), 5);
  EXPECT_FALSE(run.predicted);
  trace::Trace predicted{.source = trace::Source::kPredicted, .devices = {"a:0", "b:0"}};
  predicted.names.resize(2);
  write(directory_.predicted(), trace::print_trace(predicted));
  run = read_run(directory_.path).value();
  ASSERT_TRUE(run.predicted);
  EXPECT_EQ(run.predicted->source, trace::Source::kPredicted);
}

}  // namespace
}  // namespace motley::control
