#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "motley/base/result.h"
#include "motley/control/view/page_server.h"

namespace motley::control {

/// A page of a run directory that follows the run: a thread looks four times a second for new
/// steps, and tells the browsers that have the page open what of it has changed. It only reads. A
/// run that has ended stays to be read, and one that is started there anew is followed again.
class LivePage {
 public:
  /// Usage errors: no run directory, a port in use.
  static Result<std::unique_ptr<LivePage>> start(const std::string& run_dir, int port);
  /// Looks once more and sees to it that all browsers have it.
  ~LivePage();
  LivePage(const LivePage&) = delete;
  LivePage& operator=(const LivePage&) = delete;

  /// "http://127.0.0.1:8080/"
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
