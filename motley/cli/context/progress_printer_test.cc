#include "motley/cli/context/progress_printer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/base/file.h"
#include "motley/testing/fake_outside.h"
#include "motley/testing/small_inputs.h"

namespace motley::cli {
namespace {

using ::testing::HasSubstr;

control::StepReport report(std::int64_t step) {
  return {.step = step,
          .steps = 10,
          .logged = {.loss = 0.5, .step_s = 0.02, .compute_s = {0.02, 0.01}},
          .usual = Seconds(0.02),
          .devices = {"a:0", "b:0"}};
}

TEST(PrintProgress, SaysLossPaceBusyAndTimeLeft) {
  // After step 2 seven steps of 20 ms are left; b:0 computes half of each step.
  EXPECT_EQ(print_progress(report(2)),
            "loss: 0.5000  step: 20 ms  busy a:0 100% b:0 50%  eta 140 ms");
}

TEST(PrintProgress, LaysThePaceBesideThePlan) {
  control::StepReport beside = report(2);
  beside.predicted = Seconds(0.025);
  EXPECT_THAT(print_progress(beside), HasSubstr("step: 20 ms (plan 25 ms, -20.0%)  busy"));
}

template <typename Act>
std::string told(const Context& context, const Act& act) {
  ::testing::internal::CaptureStderr();
  {
    ProgressPrinter printer(context);
    act(printer);
  }
  return ::testing::internal::GetCapturedStderr();
}

TEST(ProgressPrinter, PlainProgressIsALineEveryFiveSeconds) {
  const control::FakeClock clock(Seconds(2));
  const Context context{.clock = &clock};
  const std::string text = told(context, [](ProgressPrinter& printer) {
    for (std::int64_t step = 0; step < 7; ++step) printer.step(report(step));
  });
  // Steps end at 2, 4, 6, ... s: the first prints nothing, then a line comes every 6 s.
  EXPECT_EQ(text, "train 4/10 " + print_progress(report(3)) + "\ntrain 7/10 " +
                      print_progress(report(6)) + "\n");
}

TEST(ProgressPrinter, ATerminalIsRedrawnAndLeftClean) {
  const control::FakeClock clock(Seconds(1));
  const Context context{.terminal = true, .clock = &clock};
  const std::string text = told(context, [](ProgressPrinter& printer) { printer.step(report(4)); });
  EXPECT_EQ(text, "\r\033[Ktrain ============............ 5/10 " + print_progress(report(4)) +
                      "\r\033[K");
}

TEST(ProgressPrinter, ANoteDoesNotRunIntoProgress) {
  const control::FakeClock clock(Seconds(1));
  const Context context{.terminal = true, .clock = &clock};
  const std::string text = told(context, [](ProgressPrinter& printer) {
    printer.step(report(4));
    printer.note("hello");
  });
  EXPECT_THAT(text, ::testing::EndsWith("\r\033[Khello\n"));
}

TEST(ProgressPrinter, QuietIsQuiet) {
  const control::FakeClock clock(Seconds(10));
  const Context context{.quiet = true, .clock = &clock};
  EXPECT_EQ(told(context,
                 [](ProgressPrinter& printer) {
                   printer.note("hello");
                   for (std::int64_t step = 0; step < 3; ++step) printer.step(report(step));
                 }),
            "");
}

TEST(ProgressPrinter, PhasesArePrintedAndDumpedByNumber) {
  const control::TemporaryDirectory directory;
  const control::FakeClock clock;
  const Context context{.clock = &clock, .print_phase = "search", .dump_dir = directory.file("d")};
  ::testing::internal::CaptureStdout();
  ProgressPrinter printer(context);
  EXPECT_TRUE(printer.phase(control::Phase::kSearch, [] { return "a plan\n"; }));
  EXPECT_TRUE(printer.phase(control::Phase::kSimulate, [] { return "a trace\n"; }));
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "a plan\n");
  EXPECT_EQ(read_file(directory.file("d/03-search.txt")).value(), "a plan\n");
  EXPECT_EQ(read_file(directory.file("d/05-simulate.txt")).value(), "a trace\n");
}

TEST(ProgressPrinter, TextThatNobodyWantsIsNotMade) {
  const control::FakeClock clock;
  const Context context{.clock = &clock, .print_phase = "load"};
  ProgressPrinter printer(context);
  bool is_made = false;
  EXPECT_TRUE(printer.phase(control::Phase::kSynth, [&] {
    is_made = true;
    return "";
  }));
  EXPECT_FALSE(is_made);
}

}  // namespace
}  // namespace motley::cli
