#include "motley/run/notices/notice_hook.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "motley/base/file.h"
#include "motley/base/text.h"

namespace motley::run {
namespace {

using Text = std::string;

const Notice kNotice{
    "aws", "terminate at noon; it's \"over\"", Seconds(12.34), true, {"a:0", "a:1"}};

class NoticeHook : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove(path_);
    std::filesystem::remove(path_ + ".new");
  }
  void TearDown() override { SetUp(); }
  /// Returns the output of the hook's first commands once complete; `rest`: what it does then.
  Text written(const Text& body, const Text& rest = "") {
    EXPECT_TRUE(start_notice_hook(
        "{ " + body + "; } > " + path_ + ".new; mv " + path_ + ".new " + path_ + rest, kNotice));
    for (int i = 0; i < 6000 && !std::filesystem::exists(path_); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return read_file(path_).value_or("(nothing)");
  }

 private:
  Text path_ = ::testing::TempDir() + "motley-hook-" + std::to_string(::getpid());
};

TEST_F(NoticeHook, TheNoticeIsInItsEnvironment) {
  ::setenv("MOTLEY_NOTICE_OLD", "1", 1);  // of a hook that started this process
  const Text all = written("env | grep ^MOTLEY_NOTICE_ | sort; echo $HOME");
  ::unsetenv("MOTLEY_NOTICE_OLD");
  EXPECT_EQ(all,
            "MOTLEY_NOTICE_CERTAIN=1\n"
            "MOTLEY_NOTICE_DEVICES=a:0 a:1\n"
            "MOTLEY_NOTICE_LEFT_S=12.3\n"
            "MOTLEY_NOTICE_SOURCE=aws\n"
            "MOTLEY_NOTICE_WHAT=terminate at noon; it's \"over\"\n" +
                Text(::getenv("HOME") != nullptr ? ::getenv("HOME") : "") + "\n");
}

TEST_F(NoticeHook, ItReadsNothingAndIgnoresNothing) {
  const auto pipe_before = ::signal(SIGPIPE, SIG_IGN);
  const Text mask = written("cat; grep ^SigIgn /proc/self/status | cut -f2");
  ::signal(SIGPIPE, pipe_before);
  constexpr unsigned long long kOfOldUnix =
      0x7fffffff;  // signals 1 to 31; others are the library's
  EXPECT_EQ(std::stoull(mask, nullptr, 16) & kOfOldUnix, 0U) << mask;
}

TEST_F(NoticeHook, ItHasASessionOfItsOwnAndLeavesNoZombie) {
  // Field 6 of stat is the session, which the shell leads.
  const Text text = written("echo $$; cut -d' ' -f6 /proc/self/stat");
  const auto lines = split(text, '\n');
  ASSERT_EQ(lines.size(), 3U) << text;
  EXPECT_EQ(lines[0], lines[1]);
  EXPECT_NE(lines[1], std::to_string(::getsid(0)));
  const Text process = "/proc/" + Text(lines[0]);
  for (int i = 0; i < 6000 && std::filesystem::exists(process); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_FALSE(std::filesystem::exists(process));
}

TEST_F(NoticeHook, NobodyWaitsForIt) {
  const auto begin = std::chrono::steady_clock::now();
  const Text pid = written("echo $$", "; exec sleep 600 2> /dev/null >&2");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(300));
  EXPECT_EQ(::kill(std::stoi(pid), SIGKILL), 0) << "it has ended: " << pid;
}

TEST(NoticeHookVariables, AnAdviceForAllOfTheMachine) {
  EXPECT_EQ(hook_variables({"gcp", "maintenance migrates it", Seconds(60), false, {}}),
            (std::vector<Text>{
                "MOTLEY_NOTICE_SOURCE=gcp", "MOTLEY_NOTICE_WHAT=maintenance migrates it",
                "MOTLEY_NOTICE_LEFT_S=60.0", "MOTLEY_NOTICE_CERTAIN=0", "MOTLEY_NOTICE_DEVICES="}));
}

}  // namespace
}  // namespace motley::run
