#pragma once

#include <gtest/gtest.h>

#include <cstdint>

#include "motley/control/planning/inputs.h"
#include "motley/testing/fake_outside.h"
#include "motley/testing/small_inputs.h"

namespace motley::control {

/// The small MLP on two CPUs, files in a directory of the test, without processes.
class SmallQuestionTest : public ::testing::Test {
 protected:
  explicit SmallQuestionTest(std::int64_t global_batch = 8) {
    question_.global_batch = global_batch;
    EXPECT_TRUE(write_mlp(question_.model));
    EXPECT_TRUE(write_file_atomic(question_.cluster, kTwoCpus));
  }

  TemporaryDirectory directory_;
  FakeWorkers workers_;
  FakeClock clock_;
  RecordingListener listener_;
  const Outside outside_{workers_, clock_, listener_};
  Question question_{.model = directory_.file("mlp.motley"),
                     .cluster = directory_.file("two.toml")};
};

}  // namespace motley::control
