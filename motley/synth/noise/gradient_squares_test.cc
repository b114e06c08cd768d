#include "motley/synth/noise/gradient_squares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "motley/program/commit.h"
#include "motley/program/program_text.h"
#include "motley/synth/lower.h"
#include "motley/synth/state/commit.h"
#include "motley/testing/golden.h"
#include "motley/testing/uneven_split.h"

namespace motley::synth {
namespace {

program::Program lower_unequal(const char* model, const plan::Plan& plan) {
  auto lowered = lower(read_graph(model), plan, lab_of_three());
  EXPECT_TRUE(lowered) << lowered.error().message;
  return std::move(lowered).value();
}

std::size_t size_of_list(const program::Instruction& instruction, std::size_t position) {
  return std::get<program::ArgumentList>(instruction.arguments.at(position).value).size();
}

/// Counts the tensors in that argument of all instructions of an operator.
std::size_t count_tensors(const program::DeviceProgram& device, const std::string& op,
                          std::size_t position) {
  std::size_t count = 0;
  for (const program::Instruction& each : device.instructions)
    if (each.op == op) count += size_of_list(each, position);
  return count;
}

class Squares : public ::testing::TestWithParam<std::tuple<const char*, plan::OptimizerKind>> {};

// Gradients are counted before and after their sum. Nothing else changes or is exchanged.
TEST_P(Squares, CountEachGradientBeforeAndAfterItIsSummed) {
  const auto& [model, optimizer] = GetParam();
  const program::Program lowered = lower_unequal(model, uneven_split(optimizer));
  const auto made = with_gradient_squares(lowered, uneven_split(optimizer));
  ASSERT_TRUE(made) << made.error().message;
  const bool is_adam = optimizer == plan::OptimizerKind::kAdamW;
  const std::string op = is_adam ? "motley::scaled_square_sums" : "motley::square_sums";
  for (std::size_t rank = 0; rank < made->devices.size(); ++rank) {
    const program::DeviceProgram &device = made->devices[rank], &plain = lowered.devices[rank];
    const std::size_t updated =
        count_tensors(plain, "motley::update", 2) + count_tensors(plain, "motley::direction", 2);
    // Nothing before batch norm is counted.
    const std::size_t counted = count_tensors(device, op, 0) - count_tensors(plain, op, 0);
    if (std::string(model) == "cnn") {
      EXPECT_TRUE(counted > 0 && counted % 2 == 0 && counted < 2 * updated) << counted;
    } else {
      EXPECT_EQ(counted, 2 * updated);
    }
    if (is_adam) {
      EXPECT_EQ(count_tensors(device, op, 1), counted);
    }
    program::DeviceProgram rest = device;
    std::erase_if(rest.instructions, [](const program::Instruction& each) {
      return each.label == "gradient squares";
    });
    ASSERT_EQ(rest.instructions.size(), plain.instructions.size());
    for (std::size_t i = 0; i < rest.instructions.size(); ++i)
      EXPECT_EQ(rest.instructions[i].full_name(), plain.instructions[i].full_name());
    const program::Instruction& report = device.instructions.back();
    ASSERT_EQ(report.arguments.size(), 7u);
    EXPECT_EQ(size_of_list(report, 4), size_of_list(report, 6));
    EXPECT_EQ(report.arguments[5], program::Argument{program::ArgumentList{{device.samples}}});
  }
  EXPECT_EQ(program::parse_program(program::print_program(*made), "again").value(), *made);
  EXPECT_TRUE(with_commit(*made));
}

INSTANTIATE_TEST_SUITE_P(Models, Squares,
                         ::testing::Combine(::testing::Values("mlp", "cnn", "gpt"),
                                            ::testing::Values(plan::OptimizerKind::kSgd,
                                                              plan::OptimizerKind::kAdamW,
                                                              plan::OptimizerKind::kLamb)));

// With several micro-batches per device, the accumulated gradient is counted once, and the sum over
// devices once; the rest stays as it was.
TEST(Squares, OfDevicesInMicroBatchesAreOfAllThatADeviceAddsUp) {
  for (const char* model : {"mlp", "cnn", "gpt"}) {
    plan::Plan plan = uneven_split(plan::OptimizerKind::kSgd);
    for (plan::Replica& replica : plan.replicas) {
      replica.samples *= 2;
      replica.micro_batches = 2;
    }
    plan.global_batch *= 2;
    plan.batch_norm_span = plan::BatchNormSpan::kMicroBatch;
    const program::Program once = lower_unequal(model, uneven_split(plan::OptimizerKind::kSgd));
    const program::Program twice = lower_unequal(model, plan);
    const auto of_one = with_gradient_squares(once, uneven_split(plan::OptimizerKind::kSgd));
    const auto of_two = with_gradient_squares(twice, plan);
    ASSERT_TRUE(of_one && of_two) << model;
    for (std::size_t rank = 0; rank < of_two->devices.size(); ++rank) {
      const program::DeviceProgram &device = of_two->devices[rank], &one = of_one->devices[rank];
      const std::string op = "motley::square_sums";
      EXPECT_EQ(count_tensors(device, op, 0), count_tensors(one, op, 0)) << model;
      const program::Instruction& report = device.instructions.back();
      EXPECT_EQ(report.arguments.at(5), program::Argument{program::ArgumentList{{device.samples}}});
      EXPECT_EQ(device.samples, 2 * one.samples);
      program::DeviceProgram rest = device;
      std::erase_if(rest.instructions, [](const program::Instruction& each) {
        return each.label == "gradient squares";
      });
      EXPECT_EQ(rest.instructions.size(), twice.devices[rank].instructions.size());
    }
  }
}

plan::Plan alone_in(std::int64_t micro_batches, std::int64_t samples,
                    plan::OptimizerKind optimizer = plan::OptimizerKind::kSgd) {
  plan::Plan plan = uneven_split(optimizer);
  plan.replicas = plan::make_replicas({DeviceId(1)}, {samples});
  plan.replicas.front().micro_batches = micro_batches;
  plan.global_batch = samples;
  return plan;
}

struct Alone {
  const char* model;
  std::int64_t micro_batches, samples;
  plan::OptimizerKind optimizer;
};
class SquaresAlone : public ::testing::TestWithParam<Alone> {};

// Each gradient, and each micro-batch's contribution to it, is counted once, before any update. The
// rest is unchanged. The unequal terms of a weight that is used twice (gpt) are added first.
TEST_P(SquaresAlone, CountWhatEachMicroBatchAdds) {
  const auto& [model, micro_batches, samples, optimizer] = GetParam();
  const plan::Plan plan = alone_in(micro_batches, samples, optimizer);
  const program::Program lowered = lower_unequal(model, plan);
  const auto made = with_gradient_squares(lowered, plan);
  ASSERT_TRUE(made) << made.error().message;
  const program::DeviceProgram &device = made->devices[0], &plain = lowered.devices[0];
  const bool is_adam = optimizer == plan::OptimizerKind::kAdamW;
  const std::string op = is_adam ? "motley::scaled_square_sums" : "motley::square_sums";
  const std::size_t updated = count_tensors(plain, "motley::update", 2);
  EXPECT_EQ(count_tensors(device, op, 0), updated * (static_cast<std::size_t>(micro_batches) + 1));
  const auto first_update =
      std::find_if(device.instructions.begin(), device.instructions.end(),
                   [](const program::Instruction& each) { return each.op == "motley::update"; });
  EXPECT_TRUE(std::none_of(first_update, device.instructions.end(),
                           [&](const auto& each) { return each.label == "gradient squares"; }));
  program::DeviceProgram rest = device;
  std::erase_if(rest.instructions,
                [](const program::Instruction& each) { return each.label == "gradient squares"; });
  ASSERT_EQ(rest.instructions.size(), plain.instructions.size());
  for (std::size_t i = 0; i < rest.instructions.size(); ++i)
    EXPECT_EQ(rest.instructions[i].full_name(), plain.instructions[i].full_name());
  const program::Instruction& report = device.instructions.back();
  ASSERT_EQ(report.arguments.size(), 6 + static_cast<std::size_t>(micro_batches));
  program::ArgumentList sizes;
  for (const plan::Stretch& each : plan::find_stretches(plan.replicas.front(), 0))
    sizes.push_back({each.count});
  EXPECT_EQ(report.arguments[5], program::Argument{sizes});
  EXPECT_EQ(program::parse_program(program::print_program(*made), "again").value(), *made);
}

INSTANTIATE_TEST_SUITE_P(Models, SquaresAlone,
                         ::testing::Values(Alone{"mlp", 2, 8, plan::OptimizerKind::kSgd},
                                           Alone{"mlp", 2, 9, plan::OptimizerKind::kSgd},
                                           Alone{"mlp", 3, 8, plan::OptimizerKind::kAdamW},
                                           Alone{"gpt", 2, 8, plan::OptimizerKind::kAdamW},
                                           Alone{"gpt", 4, 9, plan::OptimizerKind::kSgd}));

std::string why_not_counted(const plan::Plan& plan) {
  const auto made = with_gradient_squares(lower_unequal("mlp", plan), plan);
  return made ? "" : made.error().message;
}

TEST(Squares, SayWhatCannotBeCounted) {
  EXPECT_EQ(
      why_not_counted(alone_in(1, 8)),
      "a:1: noise of gradients cannot be seen: one device alone compares micro-batches, there "
      "is one");
  plan::Plan scaled = uneven_split(plan::OptimizerKind::kSgd);
  scaled.recipe.loss_scale = plan::LossScale();
  EXPECT_EQ(why_not_counted(scaled),
            "a:0: noise of gradients cannot be seen: gradients have a loss scale; leave "
            "--loss-scale out");
  plan::Plan shared = uneven_split(plan::OptimizerKind::kAdamW);
  shared.owners = {{{"*"}, {{DeviceId(0), 1.0}, {DeviceId(1), 1.0}, {DeviceId(2), 1.0}}}};
  EXPECT_NE(why_not_counted(shared).find("states are kept in parts"), std::string::npos);
}

// A step timed alone or between two counts squares, if it can; otherwise it is unchanged.
TEST(Squares, AreInWhatIsTimed) {
  const plan::Plan plan = uneven_split(plan::OptimizerKind::kAdamW);
  for (const int ranks : {1, 2}) {
    const auto plain = lower_equal(read_graph("mlp"), {4, ranks}, options_of(plan));
    ASSERT_TRUE(plain);
    const program::Program timed = with_timed_squares(*plain);
    EXPECT_EQ(count_tensors(timed.devices[0], "motley::scaled_square_sums", 0),
              2 * count_tensors(plain->devices[0], "motley::update", 2));
  }
  plan::Plan scaled = plan;
  scaled.recipe.loss_scale = plan::LossScale();
  const auto plain = lower_equal(read_graph("mlp"), {4, 2}, options_of(scaled));
  EXPECT_EQ(with_timed_squares(*plain), *plain);
}

}  // namespace
}  // namespace motley::synth
