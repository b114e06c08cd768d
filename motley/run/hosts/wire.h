#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <string>
#include <thread>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/run/hosts/child_process.h"

namespace motley::run {

/// Measured properties of a TCP connection between two hosts, as one end sees it.
struct WireTimes {
  Seconds latency;           ///< half the round trip of a byte, lower quartile; 0: not measured
  BytesPerSecond bandwidth;  ///< outgoing, of payload: without TCP's headers
};

/// How a connection is measured.
struct WireAsk {
  enum class What {
    kPing,      ///< latency only
    kSettle,    ///< bandwidth, until it is stable: 0.6 to 1.4 s
    kTogether,  ///< mean bandwidth over the second half of `seconds`, beside others
  };
  What what = What::kSettle;
  Seconds seconds{1.0};
};

/// The other end of measure_wire. Answers callers that know the word, each in its own thread.
class WireServer {
 public:
  /// Listens at `address` if it is one of this host's, else at all of them.
  static Result<std::unique_ptr<WireServer>> start(const std::string& address, std::string word);
  ~WireServer();
  WireServer(const WireServer&) = delete;
  WireServer& operator=(const WireServer&) = delete;
  int port() const { return port_; }

 private:
  struct Peer {
    Descriptor socket;
    std::atomic<bool> is_done = false;
    std::thread thread;
  };
  WireServer(Descriptor listening, int port, std::string word);
  void serve();
  void drop_done();
  Descriptor listening_;
  int port_;
  std::string word_;
  std::atomic<bool> is_over_ = false;
  std::list<Peer> peers_;  // used by the thread alone while it runs
  std::thread thread_;
};

/// Measures a connection. Runtime error `host.wire`: none, or it ended; includes the address.
Result<WireTimes> measure_wire(const std::string& address, int port, const std::string& word,
                               const WireAsk& ask);

}  // namespace motley::run
