#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "motley/control/training/adaptation.h"

namespace motley::control {

/// Plans for devices that may be left, made beside training, so that nobody has to wait for a
/// search when some are lost. Where one is not ready it is made when it is asked for. A thread of
/// the lowest priority makes them, one at a time and never while another is made for who asks; so
/// `make` need not be safe for threads, as long as nobody else calls what it calls.
class ReadyPlans {
 public:
  using Devices = std::vector<DeviceId>;
  using Make = std::function<Result<Candidate>(const Devices&)>;

  explicit ReadyPlans(Make make) : make_(std::move(make)) {}
  ~ReadyPlans();  // waits for what is being made
  ReadyPlans(const ReadyPlans&) = delete;
  ReadyPlans& operator=(const ReadyPlans&) = delete;

  /// Has plans made for the loss of each one of these; others are let go.
  void prepare(const Devices& present);
  /// The plan for these devices, which is no longer ready then.
  Result<Candidate> find(const Devices& devices);

 private:
  void work();

  const Make make_;
  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::deque<Devices> wanted_;
  std::map<Devices, Result<Candidate>> ready_;
  bool is_making_ = false;
  bool is_over_ = false;
  std::thread thread_;  // once there is something to make
};

}  // namespace motley::control
