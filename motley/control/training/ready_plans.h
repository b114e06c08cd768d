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

/// Prepares plans for the devices that remain after a loss; makes a missing one on request. One
/// thread of the lowest priority makes plans one by one, and never while `find` makes one. So
/// `make` need not be thread-safe if nobody else calls what it calls.
class ReadyPlans {
 public:
  using Devices = std::vector<DeviceId>;
  using Make = std::function<Result<Candidate>(const Devices&)>;

  explicit ReadyPlans(Make make) : make_(std::move(make)) {}
  ~ReadyPlans();  // waits for a plan being made
  ReadyPlans(const ReadyPlans&) = delete;
  ReadyPlans& operator=(const ReadyPlans&) = delete;

  /// Starts making a plan for the loss of each device; drops other plans.
  void prepare(const Devices& present);
  /// Removes and returns the plan for these devices.
  Result<Candidate> find(const Devices& devices);

 private:
  void work();

  const Make make_;
  std::mutex mutex_;  // guards all members below
  std::condition_variable changed_;
  std::deque<Devices> wanted_;
  std::map<Devices, Result<Candidate>> ready_;
  bool is_making_ = false;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace motley::control
