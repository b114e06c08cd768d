#include "motley/control/training/ready_plans.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "motley/base/quiet_thread.h"

namespace motley::control {

ReadyPlans::~ReadyPlans() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void ReadyPlans::prepare(const Devices& present) {
  const std::lock_guard lock(mutex_);
  wanted_.clear();
  std::map<Devices, Result<Candidate>> kept;
  for (const DeviceId lost : present) {
    Devices left = present;
    std::erase(left, lost);
    if (left.empty()) continue;
    if (auto known = ready_.extract(left))
      kept.insert(std::move(known));
    else
      wanted_.push_back(std::move(left));
  }
  ready_ = std::move(kept);
  if (wanted_.empty()) return;
  if (!thread_.joinable()) thread_ = start_quiet_thread([this] { work(); });
  changed_.notify_all();
}

Result<Candidate> ReadyPlans::find(const Devices& devices) {
  std::unique_lock lock(mutex_);
  std::deque<Devices> others = std::exchange(wanted_, {});  // resumed after this one
  std::erase(others, devices);
  changed_.wait(lock, [&] { return !is_making_; });
  const auto known = ready_.extract(devices);
  Result<Candidate> found = known ? std::move(known.mapped()) : make_(devices);
  wanted_ = std::move(others);
  changed_.notify_all();
  return found;
}

void ReadyPlans::work() {
  constexpr int kLowest = 19;
  (void)setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kLowest);
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return is_over_ || !wanted_.empty(); });
    if (is_over_) return;
    const Devices devices = std::move(wanted_.front());
    wanted_.pop_front();
    is_making_ = true;
    lock.unlock();
    Result<Candidate> made = make_(devices);
    lock.lock();
    is_making_ = false;
    ready_.insert_or_assign(devices, std::move(made));
    changed_.notify_all();
  }
}

}  // namespace motley::control
