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

/// What a TCP connection between two hosts gives, as one end sees it.
struct WireTimes {
  Seconds latency;           ///< half of a round trip of a byte, the lower quartile; 0 without
  BytesPerSecond bandwidth;  ///< from here to there, of what is sent: without TCP's headers
};

/// How a wire is measured.
struct WireAsk {
  enum class What {
    kPing,      ///< the latency alone
    kSettle,    ///< the bandwidth, until it no longer changes: 0.6 to 1.4 s
    kTogether,  ///< the mean bandwidth of the second half of `seconds`, beside others
  };
  What what = What::kSettle;
  Seconds seconds{1.0};
};

/// The other end of measure_wire: answers those who know the word, each in a thread, and ends with
/// the object.
class WireServer {
 public:
  /// Listens at `address` where that is one of this host's, else at all of them.
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
  std::list<Peer> peers_;  // of the thread alone, while it runs
  std::thread thread_;
};

/// Runtime error `host.wire`: no connection, or it ended, with what was tried.
Result<WireTimes> measure_wire(const std::string& address, int port, const std::string& word,
                               const WireAsk& ask);

}  // namespace motley::run
