#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "motley/policy/policy.h"
#include "motley/simulate/conditions.h"
#include "motley/trace/trace.h"

namespace motley::control {

/// Of simulated time.
inline Seconds to_seconds(trace::Nanoseconds time) {
  return Seconds(static_cast<double>(time) / 1e9);
}

/// Devices as they go away and come back: by the absences of conditions, and as is told meanwhile.
class Presence {
 public:
  /// A notice: the device's next loss is told.
  enum class What { kArrival, kLoss, kNotice };
  struct Event {
    trace::Nanoseconds at = 0;
    std::string device;
    What what = What::kArrival;
    bool operator==(const Event&) const = default;
  };

  /// `absent`: devices that are not there at the beginning.
  explicit Presence(const std::vector<simulate::Absence>& absences,
                    std::set<std::string> absent = {});

  /// Happens behind what has been taken, too.
  void add(Event event);
  /// It goes now, and nothing more is known of it.
  void leave(const std::string& device);

  /// The next event; null: nothing happens any more.
  const Event* next() const { return next_ < events_.size() ? &events_[next_] : nullptr; }
  /// Goes on behind it.
  Event take();
  /// The first loss of one of these devices among the events to come; null: none is lost.
  const Event* find_loss(const std::set<std::string>& devices) const;
  /// Who is not there now.
  const std::set<std::string>& gone() const { return gone_; }

 private:
  std::vector<Event> events_;  // in order of time, then name
  std::size_t next_ = 0;
  std::set<std::string> gone_;
};

/// What another policy asks for where devices go and come back, and what is done where it asks for
/// nothing: the batch is split again over those that are there, at once when one of the plan's is
/// gone or a notice says that it will be, behind the next step when one is there again, or at
/// once where others of the plan's are missing. No policy at all asks for nothing.
class PresencePolicy : public policy::Policy {
 public:
  struct Surroundings {
    /// Does the plan that is gone on by have this device?
    std::function<bool(const std::string&)> uses;
    /// What splits the batch over the devices that are not gone.
    std::function<Result<policy::Action>(const std::set<std::string>& gone)> split;
  };

  PresencePolicy(std::unique_ptr<policy::Policy> policy, Surroundings surroundings,
                 std::set<std::string> absent = {})
      : policy_(std::move(policy)), around_(std::move(surroundings)), gone_(std::move(absent)) {}

  std::string_view name() const override { return policy_ ? policy_->name() : "none"; }
  std::vector<policy::Choice> observe(const policy::Observation& observation) override;
  Json state() const override;
  Result<void> restore(const Json& state, const std::string& where) override;

 private:
  void split_again(const std::string& device, const char* what,
                   std::vector<policy::Choice>& choices) const;

  std::unique_ptr<policy::Policy> policy_;  // null: nobody decides
  Surroundings around_;
  std::set<std::string> gone_;
  std::string back_;  // a device that is there again and that nobody asked for yet; "": none
};

}  // namespace motley::control
