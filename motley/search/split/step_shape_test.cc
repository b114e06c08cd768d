#include "motley/search/split/step_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/testing/golden.h"
#include "motley/testing/invented_profile.h"

namespace motley::search {
namespace {

using ::testing::Each;

constexpr std::int64_t kShapedSamples = 8;

program::DeviceProgram lowered(const std::string& model, Bytes bucket,
                               std::int64_t samples = kShapedSamples) {
  synth::LowerOptions options;
  options.bucket_bytes = bucket;
  return *synth::lower_first(synth::read_graph(model), {samples, 2}, options);
}

/// Every instruction takes samples / samples_a_second.
class EqualTimes : public cost::TimeSource {
 public:
  explicit EqualTimes(double samples_a_second) : samples_a_second_(samples_a_second) {}
  std::vector<std::optional<Answer>> times(const program::DeviceProgram& program) const override {
    const double seconds = static_cast<double>(program.samples) / samples_a_second_;
    std::vector<std::optional<Answer>> answers;
    for (const program::Instruction& instruction : program.instructions) {
      const bool computes = instruction.lane == Lane::kCompute;
      answers.push_back(Answer{Seconds(computes ? seconds : 0.0), Bytes(0)});
    }
    return answers;
  }

 private:
  const double samples_a_second_;
};

// Every instruction takes a second; the closed forms then count instructions.
cost::InstructionTimes second_each(const program::DeviceProgram& program) {
  return *cost::InstructionTimes::build({program}, EqualTimes(kShapedSamples), {});
}

TEST(StepShape, TheTailUnpacksAndUpdatesOnly) {
  const program::DeviceProgram program = lowered("mlp", Bytes(64 << 10));
  const StepShape shape = find_step_shape(program);
  ASSERT_LT(shape.tail, program.instructions.size());
  for (std::size_t i = shape.tail; i < program.instructions.size(); ++i) {
    const program::Instruction& instruction = program.instructions[i];
    if (instruction.lane == Lane::kTransfer) continue;
    EXPECT_THAT((std::vector<std::string>{"motley::unpack", "motley::update", "motley::assign",
                                          "motley::report"}),
                ::testing::Contains(instruction.op));
  }
}

TEST(StepShape, StatisticsOfBatchNormBlock) {
  const auto blocking = [](const std::string& model) {
    const StepShape shape = find_step_shape(lowered(model, Bytes(64 << 10)));
    return std::count_if(shape.exchanges.begin(), shape.exchanges.end(),
                         [](const StepShape::Exchange& exchange) { return exchange.blocking; });
  };
  EXPECT_GT(blocking("cnn"), blocking("mlp"));
}

// At a second per instruction, an exchange is ready after as many seconds as compute instructions
// precede it, and the end and the updates together contain all compute.
TEST(StepShape, CurvesCountWhatComputesBefore) {
  const program::DeviceProgram program = lowered("mlp", Bytes(1));
  const StepShape shape = find_step_shape(program);
  const StepCurves curves = build_curves(shape, second_each(program), 0.5);
  std::vector<double> ready;
  double all = 0;
  for (const bool computes : shape.computes) all += computes ? 1 : 0;
  for (const StepShape::Exchange& exchange : shape.exchanges) {
    if (exchange.blocking) continue;
    double before = 0;
    for (std::size_t i = 0; i < exchange.after; ++i) before += shape.computes[i] ? 1 : 0;
    ready.push_back(before);
  }
  ASSERT_EQ(curves.ready.size(), ready.size());
  ASSERT_GT(ready.size(), 1u);
  // Half speed: two seconds each.
  for (std::size_t k = 0; k < ready.size(); ++k)
    EXPECT_DOUBLE_EQ(curves.ready[k].at(kShapedSamples), 2 * ready[k]);
  double updates = 0;
  for (const double update : curves.update) updates += update;
  EXPECT_DOUBLE_EQ(curves.end.at(kShapedSamples) + updates, 2 * all);
  EXPECT_THAT(curves.update, Each(::testing::Ge(0)));
}

// An update takes the same at any number of samples, but a device that runs at .8 of full speed
// with little work and at .2 with much takes longer with more samples: 1 / .8 s per instruction
// with 8, 2 / .2 with 16. The bound of all splits uses the least.
TEST(StepShape, AnUpdateIsTheLeastThatAPacedDeviceTakesForIt) {
  const program::DeviceProgram few = lowered("mlp", Bytes(1)),
                               many = lowered("mlp", Bytes(1), 2 * kShapedSamples);
  const StepShape shape = find_step_shape(few);
  const auto times = cost::InstructionTimes::build({few, many}, EqualTimes(kShapedSamples), {});
  const cost::Pace pace(
      {{times->total(kShapedSamples), 0.8}, {times->total(2 * kShapedSamples), 0.2}});
  const StepCurves paced = build_curves(shape, times->slowed(pace), 1);
  const StepCurves counted = build_curves(shape, second_each(few), 1);
  ASSERT_FALSE(paced.update.empty());
  for (std::size_t k = 0; k < paced.update.size(); ++k)
    EXPECT_DOUBLE_EQ(paced.update[k], counted.update[k] / 0.8);
}

}  // namespace
}  // namespace motley::search
