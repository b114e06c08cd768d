#include "motley/run/schedule.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "motley/base/json_fields.h"

namespace motley::run {
namespace {

Schedule make_schedule(const std::string& text, std::int64_t steps, std::int64_t warmup = 0) {
  Schedule schedule = parse_schedule(text).value();
  schedule.steps = steps;
  schedule.warmup = warmup;
  return schedule;
}

TEST(Schedule, LinearFallsToItsFloor) {
  // Warm-up 0, 1/2, then 1 - t/4 of 0.8 above 0.2.
  const Schedule schedule = make_schedule("linear:0.2", 6, 2);
  EXPECT_DOUBLE_EQ(schedule.factor(0), 0);
  EXPECT_DOUBLE_EQ(schedule.factor(1), 0.5);
  EXPECT_DOUBLE_EQ(schedule.factor(2), 1);
  EXPECT_DOUBLE_EQ(schedule.factor(3), 0.8);
  EXPECT_DOUBLE_EQ(schedule.factor(6), 0.2);
  EXPECT_DOUBLE_EQ(schedule.factor(100), 0.2);  // stays
}

TEST(Schedule, CosineIsHalfAPeriod) {
  const Schedule schedule = make_schedule("cosine", 8);
  EXPECT_DOUBLE_EQ(schedule.factor(0), 1);
  EXPECT_DOUBLE_EQ(schedule.factor(4), 0.5);          // cos(pi/2) = 0
  EXPECT_NEAR(schedule.factor(2), 0.85355339, 1e-8);  // (1 + sqrt(1/2)) / 2
  EXPECT_NEAR(schedule.factor(8), 0, 1e-15);
}

TEST(Schedule, StepsFallAfterTheWarmUp) {
  const Schedule schedule = make_schedule("step:3:0.5", 0, 2);
  for (const auto& [step, factor] : {std::pair{1, 0.5}, {2, 1.0}, {4, 1.0}, {5, 0.5}, {8, 0.25}})
    EXPECT_DOUBLE_EQ(schedule.factor(step), factor) << step;
  EXPECT_DOUBLE_EQ(make_schedule("step:1", 0).factor(2), 0.01);  // gamma 0.1
}

TEST(Schedule, OneCycleIsPyTorchs) {
  // OneCycleLR(max_lr=1, total_steps=10): up to step 0.3 * 10 - 1 = 2, down to step 9.
  const Schedule schedule = make_schedule("one-cycle", 10);
  EXPECT_NEAR(schedule.factor(0), 0.04, 1e-12);
  EXPECT_NEAR(schedule.factor(1), 0.52, 1e-12);  // halfway along the cosine
  EXPECT_NEAR(schedule.factor(2), 1, 1e-12);
  EXPECT_NEAR(schedule.factor(9), 4e-6, 1e-12);
}

class ScheduleFile : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = ::testing::TempDir() + "/factors.txt";
    std::filesystem::remove(path_);
  }
  void write(const std::string& text) { std::ofstream(path_) << text; }
  std::string fault() const {
    const auto parsed = parse_schedule(path_);
    return parsed ? "" : parsed.error().message;
  }
  std::string path_;
};

TEST_F(ScheduleFile, HoldsAFactorALine) {
  write("# rising\n0.5\n\n1  # all of it\n");
  const Schedule schedule = parse_schedule(path_).value();
  EXPECT_EQ(schedule.factors, (std::vector<double>{0.5, 1}));
  EXPECT_DOUBLE_EQ(schedule.factor(7), 1);
  EXPECT_TRUE(verify_schedule(schedule, 2));
  EXPECT_EQ(verify_schedule(schedule, 3).error().message,
            "--schedule: the file holds 2 factors, the training has 3 steps; give a factor for "
            "each step");
}

TEST_F(ScheduleFile, SaysWhatIsWrong) {
  write("1\nfast\n");
  EXPECT_EQ(fault(), path_ + ":2: found 'fast', wanted a factor of the learning rate, from 0 on");
  write("# nothing\n");
  EXPECT_EQ(fault(), path_ + ": holds no factor of the learning rate");
}

std::string schedule_fault(const std::string& text) {
  const auto parsed = parse_schedule(text);
  return parsed ? "" : parsed.error().message;
}

TEST(Schedule, WholeMessages) {
  EXPECT_EQ(schedule_fault("cosin"),
            "--schedule: found 'cosin', wanted one of constant linear cosine step one-cycle or a "
            "file that is there, with a factor a line, did you mean 'cosine'?");
  EXPECT_EQ(schedule_fault("cosine:2"),
            "--schedule cosine:2: found '2', wanted a number from 0 to 1");
  EXPECT_EQ(schedule_fault("constant:1"), "--schedule constant:1: found 1 numbers, wanted 0");
  EXPECT_EQ(schedule_fault("step"),
            "--schedule step: after how many steps does the rate fall? give step:EVERY or "
            "step:EVERY:GAMMA, EVERY from 1 on");
  EXPECT_EQ(verify_schedule({.warmup = 9}, 5).error().message,
            "--warmup: found 9, wanted 0 to the 5 steps of the training");
  EXPECT_EQ(verify_schedule(make_schedule("one-cycle", 3), 3).error().message,
            "--schedule one-cycle: wanted 4 steps or more");
}

TEST(Schedule, JsonRoundTrip) {
  for (const Schedule& schedule :
       {make_schedule("cosine:0.1", 100, 10), make_schedule("step:7:0.3", 20),
        Schedule{.kind = ScheduleKind::kFile, .factors = {1, 0.5}}}) {
    const auto parsed = fields_from_json<Schedule>(fields_to_json(schedule), "s");
    ASSERT_TRUE(parsed) << parsed.error().message;
    EXPECT_EQ(*parsed, schedule);
  }
}

}  // namespace
}  // namespace motley::run
