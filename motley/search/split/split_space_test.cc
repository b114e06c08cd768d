#include "motley/search/split/split_space.h"

#include <gtest/gtest.h>

#include <functional>

#include "motley/testing/toy_problem.h"

namespace motley::search {
namespace {

using Peak = std::function<std::int64_t(std::int64_t samples)>;

/// Computes peaks by a function and counts its calls.
class CountingEvaluator : public TableEvaluator {
 public:
  explicit CountingEvaluator(Peak peak)
      : TableEvaluator({linear_device(1e-3)}, no_exchange), peak_(std::move(peak)) {}
  Bytes peak_bytes(DeviceId, std::int64_t samples, Setting) const override {
    ++asked;
    return Bytes(peak_(samples));
  }
  mutable int asked = 0;

 private:
  Peak peak_;
};

/// The most of 1024 samples that fit in 1000 bytes, found with `asked` calls.
struct Cap {
  std::int64_t samples;
  int asked;
};

Cap cap_of(const Peak& peak) {
  ToyProblem toy;
  toy.add_device(linear_device(1e-3), Bytes(1000));
  toy.group = no_exchange;
  const plan::Problem& problem = toy.finish(1024);
  const CountingEvaluator evaluator(peak);
  const SplitSpace space = SplitSpace::make(problem, evaluator).value();
  // Without the first call, whether it holds all samples alone.
  return {space.cap(problem.devices[0], SplitEvaluator::Setting::kShared), evaluator.asked - 1};
}

TEST(SplitSpace, FindsTheLargestBatchThatFits) {
  EXPECT_EQ(cap_of([](std::int64_t n) { return n; }).samples, 1000);
  EXPECT_EQ(cap_of([](std::int64_t n) { return 37 + 9 * n; }).samples, 107);  // 37 + 963 = 1000
  EXPECT_EQ(cap_of([](std::int64_t n) { return n / 2; }).samples, 1024);
  EXPECT_EQ(cap_of([](std::int64_t) { return 1001; }).samples, 0);
  EXPECT_EQ(cap_of([](std::int64_t n) { return n * n; }).samples, 31);  // 961, 1024
  // A jump, as where another buffer becomes the largest: interpolation fails.
  EXPECT_EQ(cap_of([](std::int64_t n) { return n <= 700 ? 10 : 1'000'000; }).samples, 700);
}

// For a line the crossing is the answer. Calls: both ends, the crossing, the middle of the long
// rest, and the next one. Bisection needs twelve.
TEST(SplitSpace, AsksOfALineFiveTimes) {
  EXPECT_EQ(cap_of([](std::int64_t n) { return 37 + 9 * n; }).asked, 5);
}

// Every second call halves the rest: at most twice as many calls as bisection.
TEST(SplitSpace, AsksOfNoCurveMoreThanTwiceAsOftenAsHalving) {
  for (const std::int64_t jump : {2, 3, 511, 700, 1022})
    EXPECT_LE(cap_of([&](std::int64_t n) { return n < jump ? 1 : 1'000'000'000; }).asked, 2 + 20);
}

}  // namespace
}  // namespace motley::search
