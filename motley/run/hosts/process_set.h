#pragma once

#include <poll.h>

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/run/hosts/child_process.h"

namespace motley::run {

/// An event of one process of a process set.
struct Heard {
  enum class What {
    kLine,  ///< it printed a line
    kExit,  ///< it ended; follows all its lines
    kLost,  ///< its host became unreachable
  };
  int id = 0;
  What what = What::kLine;
  std::string line;  ///< or why it is lost
  int status = 0;    ///< as waitpid returns it
};

/// A process to start: motley-worker with these arguments.
struct Hand {
  int id = 0;  ///< its rank, if it is one
  std::vector<std::string> arguments;
  std::string log;           ///< local path of its stderr; "": where ours goes
  bool takes_lines = false;  ///< reads its standard input (ProcessSet::tell)
};

/// Processes of a job on one machine. None outlives the object.
class ProcessSet {
 public:
  virtual ~ProcessSet() = default;
  virtual Result<void> start(const Hand& hand) = 0;
  /// Adopts a process that its agent already started under this number. Remote sets only.
  virtual void adopt(const Hand& /*hand*/, int /*number*/) {}
  virtual void add_waits(std::vector<pollfd>& waits) const = 0;
  /// Appends all new events. Does not wait.
  virtual void listen(std::vector<Heard>& heard) = 0;
  /// Sends a line to a process that takes lines, without waiting. Ignores one that has ended.
  virtual Result<void> tell(int id, const std::string& line) = 0;
  virtual void signal(int signal) = 0;
  virtual void signal_one(int id, int signal) = 0;
  /// Stops reporting events of an unreachable process, which may still run.
  virtual void forget(int /*id*/) {}
};

/// Process sets by agent; "": this process.
using ProcessSets = std::map<std::string, std::unique_ptr<ProcessSet>>;
inline constexpr int kTickMs = 50;
/// Waits a tick for output of any process or for one of `waits`. Returns all new events.
std::vector<Heard> listen_to(const ProcessSets& sets, std::vector<pollfd> waits);

/// Processes of this machine. They die with this process.
class LocalProcessSet : public ProcessSet {
 public:
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
    std::string unsaid = "";  ///< lines that were not written yet
  };
  static void write_some(Member& member);
  std::string worker_;
  sigset_t mask_;
  std::vector<Member> members_;
};

}  // namespace motley::run
