#include "motley/run/launch/launcher.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "motley/base/file.h"

namespace motley::run {
namespace {

namespace fs = std::filesystem;

/// Workers are shell scripts: $1 is the verb, $2 the job, $4 the rank.
class LauncherTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "motley-launcher-XXXXXX";
    dir_ = ::mkdtemp(pattern.data());
    job_.run_dir = dir_ + "/run";
    job_.program_path = dir_ + "/none";
    for (const char* name : {"a:0", "b:0"})
      job_.devices.push_back(WorkerDevice{.name = name, .kind = "cpu"});
    options_.job_path = dir_ + "/job.json";
    options_.worker = dir_ + "/worker";
    options_.kill_after_s = 0.5;
  }
  void TearDown() override { fs::remove_all(dir_); }

  void worker(const std::string& script) {
    std::ofstream(options_.worker) << "#!/bin/sh\n" << script << "\n";
    fs::permissions(options_.worker, fs::perms::owner_all);
  }
  JobOutcome start() {
    return launch(job_, options_, [&](const WorkerEvent& event) { events_.push_back(event); });
  }

  std::string dir_;
  Job job_;
  LaunchOptions options_;
  std::vector<WorkerEvent> events_;
};

TEST_F(LauncherTest, PassesEventsAndFinishes) {
  worker(R"(echo chatter
echo "{\"event\":\"step\",\"rank\":$4,\"step\":0}"
printf '{"event":"done","rank":%s,"reason":"finished"}' $4)");
  const JobOutcome outcome = start();
  EXPECT_EQ(outcome.end, JobEnd::kFinished) << outcome.error.message;
  EXPECT_EQ(outcome.exit_codes, (std::vector<int>{0, 0}));
  EXPECT_EQ(events_.size(), 4u);
}

TEST_F(LauncherTest, AKilledWorkerIsBlamedNotItsPeers) {
  worker(R"(if [ $4 = 1 ]; then echo oh no >&2; sleep 0.3; kill -9 $$; fi
echo '{"event":"error","rank":0,"kind":"runtime","code":"run.peer-lost","message":"peer lost"}'
exit 1)");
  const JobOutcome outcome = start();
  EXPECT_EQ(outcome.end, JobEnd::kFailed);
  EXPECT_EQ(outcome.error.code, "run.worker-lost");
  EXPECT_EQ(outcome.error.message,
            "rank 1 (b:0) was killed by signal 9 (by somebody, or by the kernel for want of "
            "memory); last seen: not started; its last words: \"oh no\"");
  EXPECT_EQ(outcome.exit_codes, (std::vector<int>{1, 137}));
}

TEST_F(LauncherTest, TheWorkersOwnErrorIsReported) {
  worker(R"(if [ $4 = 0 ]; then exec sleep 60; fi
echo '{"event":"error","rank":1,"kind":"usage","code":"data.shape","message":"bad data"}'
exit 2)");
  const auto begin = std::chrono::steady_clock::now();
  const JobOutcome outcome = start();
  EXPECT_EQ(outcome.error, (Error{ErrorKind::kUsage, "data.shape", "bad data"}));
  EXPECT_EQ(outcome.exit_codes, (std::vector<int>{137, 2}));  // the sleeper was killed
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST_F(LauncherTest, SilenceEndsTheJob) {
  job_.timeout = Seconds(0.01);
  worker(R"(echo '{"event":"ready","rank":0}'
exec sleep 60)");
  const JobOutcome outcome = start();
  EXPECT_EQ(outcome.error.code, "run.timeout");
  EXPECT_EQ(outcome.error.message,
            "no worker got on for 5 s: rank 0 (a:0): not started; rank 1 (b:0): not started");
}

TEST_F(LauncherTest, ForwardsATermination) {
  worker(R"(trap 'echo "{\"event\":\"done\",\"rank\":$4,\"reason\":\"stopped\"}"; exit 75' TERM
echo '{"event":"ready","rank":0}'
while true; do sleep 0.1; done)");
  std::size_t ready = 0;
  const JobOutcome outcome = launch(job_, options_, [&](const WorkerEvent& event) {
    if (event.event == "ready" && ++ready == 2) ::kill(::getpid(), SIGINT);
  });
  EXPECT_EQ(outcome.end, JobEnd::kStopped) << outcome.error.message;
  EXPECT_EQ(outcome.exit_codes, (std::vector<int>{75, 75}));
}

// Rank 0 trains; rank 1 is just starting and is killed by a signal that it cannot handle yet.
TEST_F(LauncherTest, AJobStopsAlsoWhileARankJoins) {
  worker(R"(if [ $4 = 1 ]; then echo $$ > $2.joins; exec sleep 20; fi
trap 'echo "{\"event\":\"done\",\"rank\":$4,\"reason\":\"stopped\"}"; exit 75' TERM
echo '{"event":"ready","rank":0}'
while true; do sleep 0.1; done)");
  job_.changes.emplace().absent = {"b:0"};
  options_.on_loss = [](int, const Error&) { return false; };
  bool is_ready = false, is_asked = false, is_stopped = false;
  options_.orders = [&]() -> std::optional<Commands> {
    if (is_ready && !is_asked) {
      is_asked = true;
      return Commands{.start = {1}};
    }
    if (is_asked && !is_stopped && fs::exists(options_.job_path + ".joins")) {
      is_stopped = true;
      ::kill(::getpid(), SIGTERM);
    }
    return std::nullopt;
  };
  const JobOutcome outcome =
      launch(job_, options_, [&](const WorkerEvent& event) { is_ready |= event.event == "ready"; });
  EXPECT_EQ(outcome.end, JobEnd::kStopped) << outcome.error.message;
  EXPECT_EQ(outcome.exit_codes, (std::vector<int>{75, 128 + SIGTERM}));
}

TEST_F(LauncherTest, MissingWorkerIsOneMessage) {
  const JobOutcome outcome = start();
  EXPECT_EQ(outcome.end, JobEnd::kFailed);
  EXPECT_EQ(outcome.error.message,
            "cannot start " + options_.worker + ": No such file or directory");
}

}  // namespace
}  // namespace motley::run
