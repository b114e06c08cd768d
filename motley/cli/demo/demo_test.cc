#include "motley/cli/demo/demo.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/control/run_directory.h"
#include "motley/program/memory.h"
#include "motley/program/program_text.h"
#include "motley/testing/fake_outside.h"
#include "motley/testing/small_inputs.h"
#include "motley/trace/trace.h"

namespace motley::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

/// The result of one simulated run, relative to its prediction.
struct DemoRun {
  double times = 1;    ///< step time, of the first prediction of the run's plan
  double loss = 1;     ///< factor on all losses
  double memory = 1;   ///< peaks, of the prediction
  double machine = 1;  ///< factor on the machine's times from then on
  double others = 0;   ///< processors that others keep busy meanwhile
};

/// Workers whose runs follow a script, then go as predicted. Steps scale with first predictions.
class DemoWorkers : public control::FakeWorkers {
 public:
  run::JobOutcome train(const run::Job& job, const OnEvent& on_event, const Orders& orders,
                        const OnLoss& on_loss) override {
    const DemoRun run = jobs.size() < script.size() ? script[jobs.size()] : DemoRun();
    const control::RunDirectory directory{job.run_dir};
    const auto predicted =
        trace::parse_trace(read_file(directory.predicted()).value(), "predicted").value();
    const auto program =
        program::parse_program(read_file(job.program_path).value(), "program").value();
    const double step =
        first_.emplace(job.run_dir, trace::median_step(predicted).value).first->second;
    per_instruction *= run.machine;
    // A run takes ten seconds, in which its ranks use one processor.
    passed.passed += 10;
    passed.own += 10;
    passed.busy += 10 + 10 * run.others;
    std::int64_t& done = done_[job.run_dir];
    events = {{"ready", 0, {{"first_step", done}}}};
    for (; done < job.steps; ++done)
      for (std::size_t rank = 0; rank < program.devices.size(); ++rank) {
        const Bytes peak = program::find_memory_peak(program.devices[rank]).total;
        events.push_back(control::step_event(static_cast<int>(rank), done, run.times * step,
                                             0.5 * run.times * step,
                                             run.loss * (2 - 0.1 * static_cast<double>(done))));
        events.back().fields["peak_bytes"] =
            static_cast<std::int64_t>(run.memory * static_cast<double>(peak.value));
      }
    return FakeWorkers::train(job, on_event, orders, on_loss);
  }

  std::vector<DemoRun> script;
  ProcessorTime passed;

 private:
  std::map<std::string, double> first_;
  std::map<std::string, std::int64_t> done_;  // by run directory, in steps
};

/// The demo of the MLP with four steps a run, exported by a shell script.
class DemoTest : public ::testing::Test {
 protected:
  DemoTest() {
    std::filesystem::create_directories(directory_.file("examples"));
    EXPECT_TRUE(control::write_mlp(directory_.file("mlp.motley")));
    EXPECT_TRUE(control::write_mlp_data(directory_.file("examples/data.safetensors")));
    std::ofstream(places_.python) << "#!/bin/sh\necho \"$3 $4\" > " << directory_.file("exported")
                                  << "\ncp " << directory_.file("mlp.motley") << " $6\n";
    std::filesystem::permissions(places_.python, std::filesystem::perms::owner_all);
    context_.workers = &workers_;
    context_.clock = &clock_;
    context_.json = true;
  }

  int call(const std::vector<DemoRun>& script) {
    workers_.script = script;
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const auto code = demonstrate({model_}, setting_, context_);
    out_ = ::testing::internal::GetCapturedStdout();
    err_ = ::testing::internal::GetCapturedStderr();
    EXPECT_TRUE(code) << code.error().message;
    return code.value_or(-1);
  }
  Json json() const { return parse_json(out_, "stdout").value(); }
  std::vector<std::string> checks_with(const char* key, const Json& value) const {
    const Json object = json();
    std::vector<std::string> names;
    for (const Json& check : object.at("checks"))
      if (check.at(key) == value)
        names.push_back(check.at("name").get<std::string>().substr(model_.name.size() + 2));
    return names;
  }

  control::TemporaryDirectory directory_;
  DemoWorkers workers_;
  control::FakeClock clock_;
  Context context_;
  const DemoModel model_{.name = "mlp",
                         .function = "mlp.py:model",
                         .data = "data.safetensors",
                         .global_batch = 8,
                         .equal_steps = 4,
                         .steps = 4,
                         .optimizer = "sgd",
                         .lr = 0.1};
  DemoSetting setting_{
      .places = {directory_.file("python"), "package", directory_.file("examples")},
      .directory = directory_.file("demo"),
      .processors = 2,
      .processor_time = [this] { return workers_.passed; }};
  DemoPlaces& places_ = setting_.places;
  std::string out_, err_;
};

TEST_F(DemoTest, ModelsAreExportedByThePackageThatWasFound) {
  call({});
  EXPECT_EQ(read_file(directory_.file("exported")).value(),
            "package " + places_.examples + "/mlp.py:model\n");
}

TEST_F(DemoTest, BothPlansAreTimedInTurnsAndGoOnFromWhereTheyWere) {
  ASSERT_EQ(call({}), kDone) << err_;
  std::vector<std::string> runs;
  for (const run::Job& job : workers_.jobs)
    runs.push_back(fmt::format("{} to {}{}", std::filesystem::path(job.run_dir).filename().string(),
                               job.steps, job.resume ? "" : " anew"));
  EXPECT_THAT(runs,
              ElementsAre("mlp-equal to 4 anew", "mlp to 4 anew", "mlp-equal to 8", "mlp to 8"));
  for (const char* key :
       {"checks", "timings", "speedup_vs_equal_split", "prediction_error", "elapsed_s", "run_dir"})
    EXPECT_TRUE(json().contains(key)) << key;
  EXPECT_THAT(json().at("timings").at(0).at("plan_s"), SizeIs(2));
  EXPECT_THAT(checks_with("pass", true), SizeIs(5));
}

TEST_F(DemoTest, ABusyMachineFailsNothingAndIsNamed) {
  // The plan's second run takes 1.3 times as long as its first.
  EXPECT_EQ(call({{}, {}, {}, {.times = 1.3}}), kDone) << err_;
  const Json timings = json().at("timings").at(0);
  EXPECT_NEAR(timings.at("noise"), 0.3, 1e-9);
  EXPECT_EQ(timings.at("profiled_again"), false);
  EXPECT_THAT(checks_with("noise",
                          "the machine was busy: two timings of the plan differ by 30 %; "
                          "the prediction cannot be checked"),
              ElementsAre("error of the predicted step time"));
}

TEST_F(DemoTest, TheWordOfABusyMachineIsInTheText) {
  context_.json = false;
  // The plan misses its prediction by a third both times, and the equal split changed meanwhile.
  const DemoRun slower{.times = 1.5};
  EXPECT_EQ(call({{}, slower, {.times = 1.3}, slower}), kDone) << err_;
  EXPECT_THAT(out_, HasSubstr("  busy  mlp: error of the predicted step time"));
  EXPECT_THAT(out_, HasSubstr("two timings of the equal split differ by 30 %"));
  EXPECT_THAT(out_, HasSubstr("All that could be checked passed in"));
  EXPECT_THAT(out_, Not(HasSubstr("FAIL")));
}

TEST_F(DemoTest, NeitherDoesOneThatIsSharedAllTheTime) {
  const DemoRun slower{.times = 10, .others = 1.25};
  EXPECT_EQ(call({{}, slower, {}, slower}), kDone) << err_;
  const Json timings = json().at("timings").at(0);
  EXPECT_DOUBLE_EQ(timings.at("others"), 1.25);
  EXPECT_EQ(timings.at("profiled_again"), false);
  EXPECT_THAT(checks_with("noise", nullptr), SizeIs(3));
  EXPECT_THAT(err_, HasSubstr("timings of one thing are apart by 0 % (equal split) and 0 % (the "
                              "plan); others kept 1.2 of 2 processors busy"));
}

TEST_F(DemoTest, AProfileOfABusyMachineIsTakenAgain) {
  // The machine became half as fast before the plan's first run, and stays so.
  const DemoRun slower{.times = 2};
  EXPECT_EQ(call({{.machine = 2}, slower, {}, slower, slower}), kDone) << err_;
  EXPECT_THAT(err_, HasSubstr("two timings of the plan are apart by 0 %, and 50 % from the "
                              "prediction: measuring again what it rests on"));
  EXPECT_THAT(workers_.jobs, SizeIs(5));
  const Json timings = json().at("timings").at(0);
  EXPECT_EQ(timings.at("profiled_again"), true);
  EXPECT_THAT(timings.at("plan_s"), SizeIs(3));
  EXPECT_NEAR(json().at("prediction_error"), 0, 1e-6);
}

TEST_F(DemoTest, AnErrorOfThePredictionFailsAfterANewProfileOnly) {
  // The machine is unchanged, so the plan's time disagrees with the measurements of its parts.
  const DemoRun slower{.times = 1.5};
  EXPECT_EQ(call({{}, slower, {}, slower, slower}), kCheckFailed);
  EXPECT_THAT(workers_.jobs, SizeIs(5));
  EXPECT_THAT(checks_with("pass", false), ElementsAre("error of the predicted step time"));
  EXPECT_NEAR(json().at("prediction_error"), 1 - 1 / 1.5, 1e-6);
}

TEST_F(DemoTest, APlanThatIsSlowerThanTheEqualSplitFails) {
  const double predicted = [&] {
    call({});
    return json().at("speedup_vs_equal_split").get<double>();
  }();
  workers_ = {};
  // As slow as the equal split, and half as long again.
  const DemoRun slow{.times = 1.5 * predicted};
  EXPECT_EQ(call({{}, slow, {}, slow, slow}), kCheckFailed);
  EXPECT_THAT(checks_with("pass", false), ElementsAre("faster than the equal split (times)",
                                                      "error of the predicted step time"));
}

TEST_F(DemoTest, LossesAndMemoryFailOnAnyMachine) {
  EXPECT_EQ(call({{}, {.memory = 1.2}, {}, {.times = 1.3}}), kCheckFailed);
  EXPECT_THAT(checks_with("pass", false),
              ElementsAre("error of the predicted peak memory, worst device"));
  workers_ = {};
  EXPECT_EQ(call({{.loss = 1.001}, {}, {}, {.times = 1.3}}), kCheckFailed);
  EXPECT_THAT(checks_with("pass", false),
              ElementsAre("first losses under both splits, relative difference"));
}

TEST_F(DemoTest, WhatDoesNotLearnFails) {
  // From 2 on each loss falls by 0.1: the eighth is 1.3, here times 1.6.
  EXPECT_EQ(call({{}, {}, {.loss = 1.6}, {.loss = 1.6}}), kCheckFailed);
  EXPECT_THAT(checks_with("pass", false), ElementsAre("last loss over first loss"));
}

TEST_F(DemoTest, IsOverWhereATrainingWasInterrupted) {
  workers_.outcome.end = run::JobEnd::kStopped;
  const auto code = demonstrate({model_}, setting_, context_);
  ASSERT_FALSE(code);
  EXPECT_EQ(exit_code(code.error()), kInterrupted);
  EXPECT_THAT(workers_.jobs, SizeIs(1));
}

TEST_F(DemoTest, SaysHowToGoOn) {
  context_.json = false;
  context_.program = directory_.file("build/motley");
  call({});
  EXPECT_THAT(out_, HasSubstr("See what happened: " + context_.program + " report " +
                              directory_.file("demo") + "/mlp\n"));
  EXPECT_THAT(out_, HasSubstr("PYTHONPATH=package " + places_.python + " -m motley.export FILE"));
  places_.package = "";
  workers_ = {};
  call({});
  EXPECT_THAT(out_, HasSubstr("See what happened: motley report "));
  EXPECT_THAT(out_, HasSubstr("For your own model: python -m motley.export FILE.py:FUNCTION"));
}

}  // namespace
}  // namespace motley::cli
