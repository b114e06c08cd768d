#include "motley/control/claim.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/testing/other_process.h"
#include "motley/testing/small_inputs.h"

namespace motley::control {
namespace {

using testing::OtherProcess;

class ClaimTest : public ::testing::Test {
 protected:
  /// Returns "" if the directory is free, else the message after the directory's name.
  std::string refusal() const {
    const auto checked = check_not_in_use(directory_);
    if (checked) return "";
    EXPECT_EQ(checked.error().kind, ErrorKind::kUsage);
    EXPECT_EQ(checked.error().code, "run.in-use");
    EXPECT_TRUE(checked.error().message.starts_with(directory_.path + ": "));
    return checked.error().message.substr(directory_.path.size() + 2);
  }
  void write(const std::string& path, const Json& json) const {
    std::filesystem::create_directories(directory_.path);
    ASSERT_TRUE(write_file_atomic(path, json.dump()));
  }

  TemporaryDirectory temporary_;
  const RunDirectory directory_{temporary_.file("run")};
};

TEST_F(ClaimTest, OfAnotherProcessLastsAsLongAsThat) {
  OtherProcess other([&](const auto& ready) -> std::string {
    const auto claim = Claim::take(directory_);
    if (!claim) return claim.error().message;
    ready();
    ::pause();
    return "";
  });
  other.wait_for_ready();
  EXPECT_EQ(refusal(), fmt::format("is in use by a run that process {0} leads; wait for it, stop "
                                   "it (kill {0}), or name another directory",
                                   other.pid()));
  EXPECT_EQ(Claim::take(directory_).error().code, "run.in-use");
  EXPECT_EQ(find_holder(directory_)->pid, other.pid());
  other.kill();
  EXPECT_EQ(refusal(), "");
  const auto own = Claim::take(directory_);
  ASSERT_TRUE(own);
  EXPECT_EQ(find_holder(directory_)->pid, ::getpid());
}

TEST_F(ClaimTest, OnesOwnIsNoHindranceAndEndsWithTheObject) {
  {
    const auto claim = Claim::take(directory_);
    ASSERT_TRUE(claim);
    EXPECT_TRUE(Claim::take(directory_));
    EXPECT_EQ(refusal(), "");
    EXPECT_TRUE(find_holder(directory_));
  }
  EXPECT_FALSE(find_holder(directory_));
}

TEST_F(ClaimTest, OfSeveralAtATimeOneHasIt) {
  std::vector<std::unique_ptr<OtherProcess>> others;
  for (int i = 0; i < 4; ++i)
    others.push_back(std::make_unique<OtherProcess>([&](const auto& ready) -> std::string {
      const auto claim = Claim::take(directory_);
      ready();
      if (claim) ::pause();
      return claim.error().message;
    }));
  for (const auto& other : others) other->wait_for_ready();
  const auto holder = find_holder(directory_);
  ASSERT_TRUE(holder);
  int refused = 0;
  for (const auto& other : others)
    if (other->pid() != holder->pid) refused += other->wait_for_exit();
  EXPECT_EQ(refused, 3);
}

TEST_F(ClaimTest, WhoLeadsARunHasIt) {
  write(directory_.start(), {{"pid", ::getppid()}});
  EXPECT_THAT(refusal(), ::testing::StartsWith(
                             fmt::format("is in use by a run that process {} ", ::getppid())));
  write(directory_.start(), {{"pid", ::getpid()}});
  EXPECT_EQ(refusal(), "");
  // The same pid on another host is another process.
  write(directory_.start(), {{"pid", ::getppid()}, {"host", "elsewhere"}});
  EXPECT_EQ(refusal(), "");
}

TEST_F(ClaimTest, AHolderOfAnotherHostIsNamedWithIt) {
  OtherProcess other([&](const auto& ready) -> std::string {
    const auto claim = Claim::take(directory_);
    // As a process of that host would write it over a shared file system.
    std::ofstream(directory_.in_use()) << R"({"pid": 7, "host": "elsewhere"})";
    ready();
    ::pause();
    return "";
  });
  other.wait_for_ready();
  EXPECT_EQ(refusal(),
            "is in use by a run that process 7 of host elsewhere leads; wait for it, stop it, or "
            "name another directory");
}

}  // namespace
}  // namespace motley::control
