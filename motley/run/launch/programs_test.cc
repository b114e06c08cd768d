#include "motley/run/launch/programs.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>

namespace motley::run {
namespace {

/// Programs and workers are shell scripts.
class ProgramsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "motley-programs-XXXXXX";
    dir_ = ::mkdtemp(pattern.data());
    worker_ = dir_ + "/worker";
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  void worker(const std::string& script) {
    std::ofstream(worker_) << "#!/bin/sh\n" << script << "\n";
    std::filesystem::permissions(worker_, std::filesystem::perms::owner_all);
  }

  std::string dir_, worker_;
};

TEST_F(ProgramsTest, RunProgramReturnsItsOutput) {
  worker("echo one; echo $1 $2");
  const auto output = run_program(worker_, {"version", "x"}, 10);
  ASSERT_TRUE(output.has_value());
  EXPECT_EQ(*output, "one\nversion x\n");
}

TEST_F(ProgramsTest, RunProgramPassesItsError) {
  worker(R"(echo '{"event":"error","rank":0,"kind":"usage","code":"a.b","message":"no"}'; exit 2)");
  EXPECT_EQ(run_program(worker_, {"profile"}, 10).error(), (Error{ErrorKind::kUsage, "a.b", "no"}));
  worker("exit 3");
  EXPECT_EQ(run_program(worker_, {}, 10).error().message, worker_ + " ended with exit code 3");
  worker("exec sleep 60");
  EXPECT_EQ(run_program(worker_, {"profile"}, 0.2).error().message,
            worker_ + " profile: not done after 0 s");
}

std::vector<WorkerTask> tasks(const std::vector<std::string>& words) {
  std::vector<WorkerTask> list;
  for (const std::string& word : words) list.push_back({{word}, ""});
  return list;
}

TEST_F(ProgramsTest, SideBySideEndsWhenEachHasSpoken) {
  worker("sleep $1; echo line $1; exec sleep 60");
  const auto begin = std::chrono::steady_clock::now();
  const auto lines = run_side_by_side(worker_, tasks({"0.2", "0", "0.1"}), 10);
  ASSERT_TRUE(lines.has_value()) << lines.error().message;
  EXPECT_EQ(*lines, (std::vector<std::string>{"line 0.2", "line 0", "line 0.1"}));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST_F(ProgramsTest, SideBySidePassesTheFirstError) {
  worker(
      R"([ $1 = 1 ] && echo '{"event":"error","rank":0,"kind":"usage","code":"a.b","message":"no"}'; )"
      "exec sleep 60");
  EXPECT_EQ(run_side_by_side(worker_, tasks({"0", "1"}), 10).error(),
            (Error{ErrorKind::kUsage, "a.b", "no"}));
  worker("[ $1 = 1 ] && exit 3; exec sleep 60");
  EXPECT_EQ(run_side_by_side(worker_, tasks({"0", "1"}), 10).error().message,
            worker_ + " ended with exit code 3");
  worker("echo line; exec sleep $1");
  EXPECT_EQ(run_side_by_side(worker_, tasks({"0", "60"}), 10).value().size(), 2U);
  worker("[ $1 = 0 ] && echo line; exec sleep 60");
  EXPECT_EQ(run_side_by_side(worker_, tasks({"0", "1"}), 0.3).error().message,
            worker_ + ": no result of worker 2 of 2 after 0 s");
}

}  // namespace
}  // namespace motley::run
