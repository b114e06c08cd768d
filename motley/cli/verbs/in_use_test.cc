// Verbs on a run directory that another process holds: writing is refused, reading is not.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>

#include "motley/control/claim.h"
#include "motley/testing/other_process.h"
#include "motley/testing/verb_calls.h"

namespace motley::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::OtherProcess;

/// A finished run whose directory another process now holds.
class InUseTest : public VerbTest {
 protected:
  InUseTest()
      : other_((prepare(), [this](const auto& ready) -> std::string {
          const auto claim = control::Claim::take({run_dir_});
          if (!claim) return claim.error().message;
          ready();
          ::pause();
          return "";
        })) {
    other_.wait_for_ready();
    before_ = files();
    workers_.timed.clear();
  }
  ~InUseTest() override { EXPECT_EQ(files(), before_); }

  void prepare() {
    EXPECT_EQ(call_run(), kDone) << err_;
    std::filesystem::remove(run_dir_ + "/start.json");  // its process, this one, still lives
    std::filesystem::create_directories(checkpoint_);
    EXPECT_TRUE(write_file_atomic(checkpoint_ + "/state.json", "{}"));
  }
  std::map<std::string, std::string> files() const {
    std::map<std::string, std::string> found;
    for (const auto& each : std::filesystem::recursive_directory_iterator(run_dir_))
      if (each.is_regular_file()) found[each.path()] = read_file(each.path()).value();
    return found;
  }
  std::string in_use() const {
    return fmt::format(
        "2 {0}: is in use by a run that process {1} leads; wait for it, stop it (kill {1}), or "
        "name another directory [run.in-use]",
        run_dir_, other_.pid());
  }
  Words training(const std::string& verb, const Words& more = {}) const {
    Words words = {verb,     "-m",  model_,    "-C", cluster_,    "--global-batch", "8",
                   "--data", data_, "--steps", "3",  "--run-dir", run_dir_};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  const std::string checkpoint_ = run_dir_ + "/checkpoint/step-00000003";
  OtherProcess other_;
  std::map<std::string, std::string> before_;
};

TEST_F(InUseTest, RunIsRefusedBeforeAnythingIsMeasuredForIt) {
  EXPECT_EQ(refusal(training("run")), in_use());
  EXPECT_EQ(refusal(training("run", {"--prepare"})), in_use());
  EXPECT_EQ(refusal(training("run", {"--decisions", write("decisions.jsonl", "")})), in_use());
  EXPECT_THAT(workers_.timed, IsEmpty());
  other_.kill();
  EXPECT_EQ(call(training("run")), kDone) << err_;
  before_ = files();
}

TEST_F(InUseTest, VerifyIsRefused) {
  EXPECT_EQ(refusal(training("verify")), in_use());
  EXPECT_THAT(workers_.timed, IsEmpty());
}

TEST_F(InUseTest, ConsolidateIsRefusedInPlaceAndReadsForAnotherFolder) {
  EXPECT_EQ(refusal({"consolidate", checkpoint_}), in_use());
  EXPECT_EQ(refusal({"consolidate", checkpoint_, "--hosts", "-o", directory_.file("out")}),
            in_use());
  EXPECT_EQ(refusal({"consolidate", checkpoint_, "-o", run_dir_}), in_use());
  EXPECT_EQ(refusal({"consolidate", checkpoint_, "--hf", "source", "-o", run_dir_ + "/"}),
            in_use());
  EXPECT_THAT(refusal({"consolidate", checkpoint_, "-o", directory_.file("out")}),
              Not(HasSubstr("[run.in-use]")));
}

TEST_F(InUseTest, WhatReadsIsNotRefused) {
  EXPECT_EQ(call({"report", run_dir_}), kDone) << err_;
  // Its workers kept no trace.
  EXPECT_THAT(refusal({"profile", "-m", model_, "-C", cluster_, "--from-run", run_dir_}),
              HasSubstr("trace/rank-0.txt"));
}

}  // namespace
}  // namespace motley::cli
