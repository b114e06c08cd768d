#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/run/hosts/child_process.h"

namespace motley::run {

/// What a TCP connection between two hosts gives, as one end sees it.
struct WireTimes {
  Seconds latency;           ///< half of a round trip of a byte, the median of many
  BytesPerSecond bandwidth;  ///< from here to there
};

/// The other end of measure_wire: answers one who knows the word, in a thread, and ends with the
/// object.
class WireServer {
 public:
  /// Listens at `address` where that is one of this host's, else at all of them.
  static Result<std::unique_ptr<WireServer>> start(const std::string& address, std::string word);
  ~WireServer();
  WireServer(const WireServer&) = delete;
  WireServer& operator=(const WireServer&) = delete;
  int port() const { return port_; }

 private:
  WireServer(Descriptor listening, int port, std::string word);
  void serve();
  Descriptor listening_;
  int port_;
  std::string word_;
  std::atomic<bool> is_over_ = false;
  std::thread thread_;
};

/// Measures for about a second. Runtime error `host.wire`: no connection, with what was tried.
Result<WireTimes> measure_wire(const std::string& address, int port, const std::string& word);

}  // namespace motley::run
