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

/// What an agent has of a job that is to outlive its coordinator: a memory, which the coordinator
/// leaves with it again and again, and a port where another coordinator may ask for it.
///
/// The memory is a JSON object of the coordinator's, of which four parts are read here: `view`, the
/// hosts of the job, `coordinator`, which of them leads it, `arguments`, by which `motley` goes on
/// with it, and `name`, of the files with what that prints. When the coordinator is gone the first
/// other host of the view starts that, the next one some seconds later, if nobody came, and so on.
/// Whoever comes first has this agent until it is gone itself.
class Standby {
 public:
  struct Options {
    std::string program;   ///< path of motley
    std::string folder;    ///< of the agent: memory.json is written there
    std::string led;       ///< that outlives the agent: NAME.log and NAME.out are written there
    std::string host;      ///< as the job calls this host
    std::string word;      ///< that a coordinator must know
    double patience = 20;  ///< seconds of the coordinator's silence, after which it is gone
  };
  /// Runtime error `run.port`.
  static Result<std::unique_ptr<Standby>> start(Options options);

  int port() const { return port_; }
  double patience() const { return options_.patience; }
  /// JSON text. Usage error where it is none; throws where parts are missing.
  Result<void> remember(std::string text);
  const std::string& memory() const { return text_; }
  /// Is there anything to go on with?
  bool has_memory() const { return !text_.empty(); }

  /// That whoever asks is to be told that the coordinator lives. Does not wait.
  int descriptor() const { return socket_.number(); }
  void refuse() const;
  /// The coordinator is gone: waits for another. Runtime error `agent.alone`: none came for a
  /// minute.
  Result<Descriptor> await_coordinator();
  /// Since when the coordinator was gone when it was last waited for, seconds.
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
  int started_ = 0;  // leads
};

}  // namespace motley::run
