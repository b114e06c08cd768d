#include "motley/base/parallel.h"

#include <gtest/gtest.h>

#include <vector>

namespace motley {
namespace {

TEST(RunInParallel, DoesEachTaskOnceBeforeItReturns) {
  for (const std::size_t count : {0U, 1U, 2U, 1000U}) {
    std::vector<int> done(count);
    run_in_parallel(count, [&](std::size_t i) { ++done[i]; });
    EXPECT_EQ(done, std::vector<int>(count, 1));
  }
}

}  // namespace
}  // namespace motley
