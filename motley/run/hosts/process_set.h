#pragma once

#include <poll.h>

#include <cstddef>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/run/hosts/child_process.h"

namespace motley::run {

/// What was heard of one of a process set's processes.
struct Heard {
  enum class What {
    kLine,  ///< that it printed
    kExit,  ///< after all its lines
    kLost,  ///< its host cannot be reached any more
  };
  int id = 0;
  What what = What::kLine;
  std::string line;  ///< or why it is lost
  int status = 0;    ///< as waitpid gives it
};

/// A process to be started: motley-worker with these arguments.
struct Hand {
  int id = 0;  ///< its rank, where it is one
  std::vector<std::string> arguments;
  std::string log;           ///< where stderr goes, on this machine; "" = where ours goes
  bool takes_lines = false;  ///< reads its standard input (Crew::tell)
};

/// Processes of a job on one machine. None outlives the object.
class ProcessSet {
 public:
  virtual ~ProcessSet() = default;
  virtual Result<void> start(const Hand& hand) = 0;
  /// One that its agent has started already, which it knows by this number. Of process sets
  /// elsewhere.
  virtual void adopt(const Hand& /*hand*/, int /*number*/) {}
  /// What poll may wait for before there is something to hear.
  virtual void add_waits(std::vector<pollfd>& waits) const = 0;
  /// All that has come since. Does not wait.
  virtual void listen(std::vector<Heard>& heard) = 0;
  /// Gives a process a line on its standard input, which it reads when it can. Of one that has
  /// ended nothing happens. Of hands that take lines.
  virtual Result<void> tell(int id, const std::string& line) = 0;
  /// To each that still runs.
  virtual void signal(int signal) = 0;
  /// To one, if it runs.
  virtual void signal_one(int id, int signal) = 0;
  /// Nothing more is heard of one that cannot be reached, and may go on where it is.
  virtual void forget(int /*id*/) {}
};

/// Those of this machine. The programs die with this process.
class LocalProcessSet : public ProcessSet {
 public:
  /// `mask`: of their signals.
  LocalProcessSet(std::string worker, sigset_t mask) : worker_(std::move(worker)), mask_(mask) {}
  ~LocalProcessSet() override;
  LocalProcessSet(const LocalProcessSet&) = delete;
  LocalProcessSet& operator=(const LocalProcessSet&) = delete;
  Result<void> start(const Hand& hand) override;
  void add_waits(std::vector<pollfd>& waits) const override;
  void listen(std::vector<Heard>& heard) override;
  Result<void> tell(int id, const std::string& line) override;
  void signal(int signal) override;
  void signal_one(int id, int signal) override;

 private:
  struct Member {
    int id = 0;
    Child child;
    std::string unsaid = "";  ///< of what it is told, not read yet
  };
  static void write_some(Member& member);
  std::string worker_;
  sigset_t mask_;
  std::vector<Member> members_;
};

}  // namespace motley::run
