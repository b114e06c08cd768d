#include "motley/run/launch/diagnosis.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "motley/base/file.h"
#include "motley/run/hosts/status.h"

namespace motley::run {
namespace {

class StatusTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "motley-status-XXXXXX";
    dir_ = ::mkdtemp(pattern.data());
  }
  std::string dir_;
};

TEST_F(StatusTest, NothingIsThereBeforeTheWorkerStarts) {
  const auto missing = StatusFile::open(dir_, 1);
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().message, dir_ + "/status/rank-1: No such file or directory");
}

TEST_F(StatusTest, OutlivesAKilledWorker) {
  const pid_t child = ::fork();
  if (child == 0) {
    const auto file = StatusFile::create(dir_, 0);
    file->record().step = 17;
    file->record().transfer_instruction = 9;
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  Job job;
  job.run_dir = dir_;
  job.program_path = dir_ + "/none";
  job.devices = {WorkerDevice{.name = "a:0", .kind = "cpu"},
                 WorkerDevice{.name = "b:0", .kind = "cpu"}};
  Diagnosis diagnosis(job);
  EXPECT_EQ(diagnosis.all(), "rank 0 (a:0): step 17, ^9; rank 1 (b:0): not started");
  EXPECT_EQ(diagnosis.find_lost(), std::vector<int>{0});
}

TEST_F(StatusTest, SaysWithWhomASendOrReceiveIs) {
  auto file = StatusFile::create(dir_, 0);
  ASSERT_TRUE(file.has_value());
  Job job;
  job.run_dir = dir_;
  job.program_path = dir_ + "/program";
  job.devices = {WorkerDevice{.name = "a:0", .kind = "cpu"},
                 WorkerDevice{.name = "b:0", .kind = "cpu"}};
  ASSERT_TRUE(write_file_atomic(
      job.program_path,
      "motley.program/1\nmodel \"\" plan \"\" global_batch 0\n"
      "device \"a:0\" samples 0 first 0\nbuffer %0: temporary f32[2]\n"
      "peer ^0: %0 = motley::receive(1) \"h.3\"\ncompute ^1: aten::f(%0) wait ^0\n"
      "device \"b:0\" samples 0 first 0\nbuffer %0: constant f32[2] \"c\"\n"
      "peer ^0: motley::send(%0, 0)\n"));
  Diagnosis diagnosis(job);
  const std::uint64_t before = diagnosis.progress();
  file->record().step = 3;
  file->record().compute_instruction = 1;
  file->record().peer_instruction = 0;
  EXPECT_EQ(diagnosis.where(0), "step 3, ^1 aten::f, ^0 motley::receive \"h.3\" with rank 1 (b:0)");
  const std::uint64_t then = diagnosis.progress();
  EXPECT_NE(then, before);
  file->record().peer_instruction = -1;
  EXPECT_NE(diagnosis.progress(), then);
}

TEST_F(StatusTest, NamesInstructionsAndSeesProgress) {
  auto file = StatusFile::create(dir_, 0);
  ASSERT_TRUE(file.has_value());
  Job job;
  job.run_dir = dir_;
  job.devices = {WorkerDevice{.name = "a:0", .kind = "cpu"}};
  Diagnosis diagnosis(job);
  const std::uint64_t before = diagnosis.progress();
  EXPECT_EQ(diagnosis.progress(), before);
  file->record().step = 1;
  EXPECT_NE(diagnosis.progress(), before);
  EXPECT_EQ(diagnosis.where(0), "step 1, between instructions");
  EXPECT_TRUE(diagnosis.find_lost().empty());
}

}  // namespace
}  // namespace motley::run
