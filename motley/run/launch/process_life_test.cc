#include "motley/run/launch/process_life.h"

#include <gtest/gtest.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "motley/base/file.h"

namespace motley::run {
namespace {

TEST(ProcessLife, EndsWithTheProcess) {
  EXPECT_TRUE(is_alive(::getpid()));
  EXPECT_FALSE(is_alive(0));
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  siginfo_t ended;
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(is_alive(child)) << "it has ended, and nobody has collected it";
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(is_alive(child));
}

TEST(ProcessLife, OneThatBeganAfterTheFileIsAnother) {
  const std::string path = ::testing::TempDir() + "motley-life-" + std::to_string(::getpid());
  ASSERT_TRUE(write_file_atomic(path, "here"));
  EXPECT_TRUE(is_writer_alive(::getpid(), path));
  const timeval long_ago[2] = {{1000, 0}, {1000, 0}};
  ASSERT_EQ(::utimes(path.c_str(), long_ago), 0);
  EXPECT_FALSE(is_writer_alive(::getpid(), path));
  ::unlink(path.c_str());
}

}  // namespace
}  // namespace motley::run
