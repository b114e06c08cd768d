#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "motley/run/torch/reporter.h"
#include "motley/run/torch/worker_session.h"
#include "motley/testing/small_job.h"
#include "motley/testing/thread_ranks.h"

namespace motley::run {

/// Captures a worker's reports; stdout is memory during construction, so no thread may write then.
class HeardReporter {
 public:
  explicit HeardReporter(int rank) : memory_(::memfd_create("events", MFD_CLOEXEC)) {
    std::fflush(stdout);
    const int kept = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    ::dup2(memory_, STDOUT_FILENO);
    reporter_ = std::make_unique<Reporter>();
    ::dup2(kept, STDOUT_FILENO);
    ::close(kept);
    reporter_->set_rank(rank);
  }
  ~HeardReporter() {
    ::close(reporter_->output());
    ::close(memory_);
  }
  HeardReporter(const HeardReporter&) = delete;
  HeardReporter& operator=(const HeardReporter&) = delete;

  const Reporter& reporter() const { return *reporter_; }
  /// Returns the events so far, of one name or all.
  std::vector<Json> events(const std::string& name = "") const {
    struct stat about {};
    ::fstat(memory_, &about);
    std::string text(static_cast<std::size_t>(about.st_size), '\0');
    EXPECT_EQ(::pread(memory_, text.data(), text.size(), 0), about.st_size);
    std::vector<Json> found;
    for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
      end = text.find('\n', begin);
      const Json line = Json::parse(text.substr(begin, end - begin));
      if (name.empty() || line.at("event") == name) found.push_back(line);
    }
    return found;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const Json& each : events()) names.push_back(each.at("event"));
    return names;
  }
  std::vector<double> losses() const {
    std::vector<double> losses;
    for (const Json& each : events("step")) losses.push_back(each.at("loss"));
    return losses;
  }

 private:
  int memory_;
  std::unique_ptr<Reporter> reporter_;
};

/// Ranks of a job of the small model as threads. Model and data are in the test's folder.
class TrainingTest : public RendezvousTest {
 protected:
  using Voices = std::vector<std::unique_ptr<HeardReporter>>;
  using Body = std::function<void(WorkerSession&, const Reporter&)>;

  void SetUp() override {
    RendezvousTest::SetUp();
    std::filesystem::create_directories(dir_ + "/run");
    model_.write(dir_ + "/model.motley");
    model_.write_data(dir_ + "/data.safetensors");
  }

  /// Removes the rendezvous of an earlier job's ranks.
  void forget_meeting() { std::filesystem::remove(dir_ + "/rendezvous"); }

  static Voices voices_of(std::size_t ranks) {
    Voices voices;
    for (std::size_t rank = 0; rank < ranks; ++rank)
      voices.push_back(std::make_unique<HeardReporter>(static_cast<int>(rank)));
    return voices;
  }

  std::unique_ptr<WorkerSession> session_of(const Job& job, const SmallPrograms& programs,
                                            int rank) {
    auto session = std::make_unique<WorkerSession>();
    session->job = job;
    session->program = programs.training;
    if (job.evaluation) session->evaluations = programs.evaluations;
    session->rank = session->process = rank;
    session->size = static_cast<int>(job.devices.size());
    if (session->size > 1) session->rendezvous = open(rank, session->size);
    return session;
  }

  /// Runs all ranks at once; returns their reporters, by rank.
  Voices run_ranks(const Job& job, const SmallPrograms& programs, const Body& body) {
    forget_meeting();
    Voices voices = voices_of(job.devices.size());
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < voices.size(); ++rank)
      threads.emplace_back([&, rank] {
        const auto session = session_of(job, programs, static_cast<int>(rank));
        body(*session, voices[rank]->reporter());
      });
    for (std::thread& thread : threads) thread.join();
    return voices;
  }

  const SmallModel model_;
};

}  // namespace motley::run
