#include "motley/run/launch/failure.h"

#include <gtest/gtest.h>

namespace motley::run {
namespace {

Error error(const char* message) { return Error{ErrorKind::kRuntime, "run.x", message}; }

TEST(FailureTest, TheGravestIsBlamedAndTheFirstOfEquals) {
  Failure failure(60);
  EXPECT_FALSE(failure.is_any());
  failure.blame(Blame::kConsequence, error("lost peer"));
  failure.blame(Blame::kDeath, error("died"));
  failure.blame(Blame::kDeath, error("died too"));
  failure.blame(Blame::kError, error("said so"));
  EXPECT_TRUE(failure.is_any());
  EXPECT_EQ(failure.error().message, "died");
}

TEST(FailureTest, SurvivorsHaveTimeFromTheFirstFailure) {
  Failure failure(60);
  failure.hurry(0);
  EXPECT_FALSE(failure.is_overdue());  // nothing has failed
  failure.hurry(60);                   // never gives more
  failure.blame(Blame::kError, error("said so"));
  EXPECT_TRUE(failure.is_overdue());
  Failure patient(60);
  patient.blame(Blame::kError, error("said so"));
  EXPECT_FALSE(patient.is_overdue());
}

}  // namespace
}  // namespace motley::run
