#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "motley/base/descriptor.h"
#include "motley/base/json.h"
#include "motley/base/result.h"
#include "motley/run/hosts/child_process.h"
#include "motley/run/hosts/elapsed.h"

namespace motley::run {

/// An agent's share of a job that is to outlive its coordinator: a memory, which the coordinator
/// renews regularly, and a port for the next coordinator.
///
/// The memory is a JSON object. Read here are `view`, the hosts of the job; `lead`, the
/// coordinator's host; `arguments`, with which `motley` continues the job; and `name`, the base
/// name of the files with its output. When the coordinator is gone, the first other host of the
/// view starts that command, the next one some seconds later if nobody came, and so on. The first
/// coordinator to come keeps this agent until it is gone itself.
class Standby {
 public:
  struct Options {
    std::string program;   ///< path of motley
    std::string folder;    ///< of the agent: memory.json is written there
    std::string led;       ///< outlives the agent; holds NAME.log and NAME.out
    std::string host;      ///< this host's name in the job
    std::string word;      ///< a coordinator must know it
    double patience = 20;  ///< seconds of silence after which the coordinator is gone
  };
  /// Starts listening. Runtime error `run.port`.
  static Result<std::unique_ptr<Standby>> start(Options options);

  int port() const { return port_; }
  double patience() const { return options_.patience; }
  /// Stores a JSON text. Usage error: it is not JSON. Throws if parts are missing.
  Result<void> remember(std::string text);
  const std::string& memory() const { return text_; }
  bool has_memory() const { return !text_.empty(); }

  /// Answers a caller that the coordinator lives. Does not wait.
  int descriptor() const { return socket_.number(); }
  void refuse() const;
  /// Waits for the next coordinator. Runtime error `agent.alone`: none came for a minute.
  Result<Descriptor> await_coordinator();
  /// Returns the seconds without a coordinator at the last wait.
  double alone() const { return alone_; }

 private:
  Standby(Options options, Descriptor socket, int port)
      : options_(std::move(options)), socket_(std::move(socket)), port_(port) {}
  std::optional<Descriptor> let_in() const;
  double turn() const;
  Result<void> lead_on();

  Options options_;
  Descriptor socket_;
  int port_;
  std::string text_, name_, coordinator_;
  std::vector<std::string> view_, arguments_;
  double alone_ = 0;
  int started_ = 0;  // coordinators
};

}  // namespace motley::run
