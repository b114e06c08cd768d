#include "motley/run/torch/torch_version.h"

#include <gtest/gtest.h>

namespace motley::run {
namespace {

TEST(TorchVersion, TheTestsRunOnWhatTheyWereBuiltFor) {
  EXPECT_TRUE(check_torch_version().has_value());
  EXPECT_EQ(loaded_torch_version(), built_torch_version());
}

TEST(TorchVersion, RefusesAnotherMinor) {
  EXPECT_TRUE(compare_torch_versions("2.15.0", "2.15.3").has_value());
  EXPECT_EQ(
      compare_torch_versions("2.15.0", "2.11.0").error(),
      (Error{ErrorKind::kUsage, "run.torch-version",
             "motley-worker is built for PyTorch 2.15.*, found PyTorch 2.11.0; install 2.15.* "
             "or build again with TORCH_VERSION=2.11.0"}));
}

}  // namespace
}  // namespace motley::run
