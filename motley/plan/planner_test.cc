#include "motley/plan/planner.h"

#include <gtest/gtest.h>

namespace motley::plan {
namespace {

TEST(Reason, Names) {
  EXPECT_EQ(reason_name(Reason::kOptimal), "optimal");
  EXPECT_EQ(reason_name(Reason::kFeasible), "feasible");
  EXPECT_EQ(reason_name(Reason::kInfeasible), "infeasible");
  EXPECT_EQ(reason_name(Reason::kLimit), "limit");
}

}  // namespace
}  // namespace motley::plan
