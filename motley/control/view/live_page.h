#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "motley/base/result.h"
#include "motley/control/view/page_server.h"

namespace motley::control {

/// A page that follows a run directory, read-only: a thread checks four times a second and sends
/// changes to browsers. Ended runs stay visible; restarted ones are followed again.
class LivePage {
 public:
  /// Usage errors: no run directory; the port is in use.
  static Result<std::unique_ptr<LivePage>> start(const std::string& run_dir, int port);
  /// Checks once more and sends the result to all browsers.
  ~LivePage();
  LivePage(const LivePage&) = delete;
  LivePage& operator=(const LivePage&) = delete;

  std::string address() const;

 private:
  class Follower;
  LivePage(std::unique_ptr<PageServer> server, std::unique_ptr<Follower> follower);

  std::unique_ptr<PageServer> server_;
  std::unique_ptr<Follower> follower_;
  std::atomic<bool> ends_ = false;
  std::thread thread_;
};

}  // namespace motley::control
