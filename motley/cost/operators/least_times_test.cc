#include "motley/cost/operators/least_times.h"

#include <gtest/gtest.h>

#include <memory>

#include "motley/testing/product_programs.h"

namespace motley::cost {
namespace {

/// Takes a second per byte.
class Slow : public WorkTimes {
 public:
  using WorkTimes::WorkTimes;
  Answer answer(std::string_view, DType, const OperatorWork& work) const override {
    return {Seconds(work.bytes), Bytes(0)};
  }
};

/// Takes a fraction of Slow's times.
class Share : public TimeSource {
 public:
  Share(const Slow& slow, double share) : slow_(slow), share_(share) {}
  std::vector<std::optional<Answer>> times(const program::DeviceProgram& program) const override {
    auto answers = slow_.times(program);
    for (auto& answer : answers) answer->seconds = answer->seconds * share_;
    return answers;
  }

 private:
  const Slow& slow_;
  double share_;
};

// The source takes half, so the bound does too; if the source takes twice as long, times stay.
TEST(LeastTimes, TakesTheLeastRatioOfEachOperator) {
  const auto graph = std::make_shared<const graph::Graph>();
  const auto slow = std::make_shared<const Slow>(graph);
  const std::vector<program::DeviceProgram> programs = {product_program(4, 2)};
  const LeastTimes half(graph, slow, programs, Share(*slow, 0.5));
  EXPECT_EQ(half.answer("aten::mm", DType::kF32, {0, 8, 1}).seconds, Seconds(4));
  EXPECT_EQ(half.answer("aten::relu", DType::kF32, {0, 8, 1}).seconds, Seconds(8));
  const LeastTimes twice(graph, slow, programs, Share(*slow, 2));
  EXPECT_EQ(twice.answer("aten::mm", DType::kF32, {0, 8, 1}).seconds, Seconds(8));
}

// The bound is half of Slow's times: a quarter is raised to it, three quarters stay.
TEST(AtLeast, RaisesWhatIsBelow) {
  const auto graph = std::make_shared<const graph::Graph>();
  const auto slow = std::make_shared<const Slow>(graph);
  const program::DeviceProgram program = product_program(4, 2);
  const auto least = std::make_shared<const LeastTimes>(
      graph, slow, std::vector<program::DeviceProgram>{program}, Share(*slow, 0.5));
  const auto wanted = slow->times(program);
  const auto quarter = AtLeast(std::make_shared<const Share>(*slow, 0.25), least).times(program);
  const auto most = AtLeast(std::make_shared<const Share>(*slow, 0.75), least).times(program);
  for (const std::size_t i : {0u, 1u}) {
    EXPECT_EQ(quarter[i]->seconds, wanted[i]->seconds * 0.5);
    EXPECT_EQ(most[i]->seconds, wanted[i]->seconds * 0.75);
  }
}

}  // namespace
}  // namespace motley::cost
