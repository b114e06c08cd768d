#include "motley/control/training/correcting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "motley/base/file.h"
#include "motley/cost/measured/whole_step.h"
#include "motley/cost/profile_cost.h"
#include "motley/program/program_text.h"
#include "motley/testing/fake_outside.h"
#include "motley/testing/small_inputs.h"

namespace motley::control {
namespace {

using ::testing::SizeIs;

/// A run of two steps on two whole CPUs in which every instruction takes `microseconds`.
class CorrectingTest : public ::testing::Test {
 protected:
  explicit CorrectingTest(const char* cluster = kTwoCpus) : inputs_(small_inputs(cluster, 8)) {}
  Answer answer(const std::vector<std::int64_t>& samples) {
    return find_plan(inputs_,
                     {.prices = {.profiles = directory_.file("profiles.db")}, .manual = samples},
                     outside_)
        .value();
  }
  cost::ProfileStore store() const { return open_store(directory_.file("profiles.db")).value(); }
  void leave_run(const Planned& planned, std::int64_t microseconds, std::int64_t steps = 2) {
    std::filesystem::create_directories(run_.path + "/trace");
    write(run_.plan(), plan::print_plan(planned.plan, inputs_.cluster));
    write(run_.program(), program::print_program(*planned.program));
    for (std::size_t rank = 0; rank < planned.program->devices.size(); ++rank)
      write(run_.measured(rank),
            trace::print_trace(trace_of(planned.program->devices[rank], microseconds, steps)));
  }
  void write(const std::string& path, const std::string& text) const {
    ASSERT_TRUE(write_file_atomic(path, text));
  }
  static trace::Trace trace_of(const program::DeviceProgram& device, std::int64_t microseconds,
                               std::int64_t steps) {
    trace::Trace trace{.source = trace::Source::kMeasured, .devices = {device.device}};
    trace.names.resize(1);
    for (const program::Instruction& each : device.instructions)
      trace.names[0].push_back(each.full_name());
    trace::Nanoseconds now = 0;
    for (std::int64_t step = 0; step < steps; ++step) {
      const trace::Nanoseconds begin = now;
      for (std::size_t i = 0; i < device.instructions.size(); ++i) {
        if (device.instructions[i].lane != Lane::kCompute) continue;
        const InstructionId id(static_cast<std::int64_t>(i));
        trace.intervals.push_back(
            {.step = step, .instruction = id, .begin = now, .end = now + 1000 * microseconds});
        now += 1000 * microseconds;
      }
      trace.steps.push_back({.step = step, .begin = begin, .end = now});
    }
    return trace;
  }

  TemporaryDirectory directory_;
  Inputs inputs_;
  FakeWorkers workers_;
  FakeClock clock_;
  RecordingListener listener_;
  const Outside outside_{workers_, clock_, listener_};
  RunDirectory run_{directory_.file("run")};
};

class EmulatedCorrectingTest : public CorrectingTest {
 protected:
  EmulatedCorrectingTest() : CorrectingTest(kEmulated) {}
};

TEST_F(CorrectingTest, ARunIsOneMoreRoundOfItsOperators) {
  const Answer found = answer({4, 4});
  leave_run(*found.planned, 30);
  cost::ProfileStore kept = store();
  const auto corrected = correct_from_run(run_.path, "2.15", inputs_, kept);
  ASSERT_TRUE(corrected) << corrected.error().message;
  EXPECT_EQ(corrected->spread, 0);
  EXPECT_GT(corrected->entries, 0);
}

TEST_F(EmulatedCorrectingTest, OfEmulatedDevicesWholeStepsAreKept) {
  const Answer found = answer({4, 2, 2});
  leave_run(*found.planned, 30);
  cost::ProfileStore kept = cost::ProfileStore::open(":memory:").value();
  EXPECT_EQ(correct_from_run(run_.path, "2.15", inputs_, kept)->entries, 3);
  const auto key = cost::emulated_key(inputs_.cluster, DeviceId(0), "2.15");
  const auto steps = cost::find_steps(kept, key, profile_subject(inputs_)).value();
  ASSERT_THAT(steps, SizeIs(1));
  EXPECT_EQ(steps[0].samples, 4);
  std::int64_t instructions = 0;
  for (const program::Instruction& each : found.planned->program->devices[0].instructions)
    instructions += each.lane == Lane::kCompute ? 1 : 0;
  EXPECT_NEAR(steps[0].seconds.value, 30e-6 * static_cast<double>(instructions), 1e-9);
}

TEST_F(CorrectingTest, ARunOfAnotherClusterIsStale) {
  leave_run(*answer({4, 4}).planned, 30);
  inputs_.cluster.devices[1].threads = 2;
  cost::ProfileStore kept = store();
  const auto corrected = correct_from_run(run_.path, "2.15", inputs_, kept);
  ASSERT_FALSE(corrected);
  EXPECT_EQ(corrected.error().kind, ErrorKind::kStale);
}

TEST_F(CorrectingTest, ATraceWithoutStepsSaysHowToGetOne) {
  leave_run(*answer({4, 4}).planned, 30, 0);
  cost::ProfileStore kept = store();
  const auto corrected = correct_from_run(run_.path, "2.15", inputs_, kept);
  ASSERT_FALSE(corrected);
  EXPECT_EQ(corrected.error().message,
            run_.measured(0) + ": holds no step; run with --trace-steps N");
}

}  // namespace
}  // namespace motley::control
