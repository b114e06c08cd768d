#pragma once

#include <optional>
#include <utility>

#include "motley/base/units.h"
#include "motley/job/order.h"

namespace motley::job {

/// Decides when the coordinator replicates its state to standby hosts, one of which takes over if
/// it is lost (run/launch/agent_takeover.h): before a change is given out, and when all processes
/// have halted, to learn whether enough hosts still follow.
class Coordinator {
 public:
  explicit Coordinator(bool has_standbys) : has_standbys_(has_standbys) {}

  /// Returns `order` or, before a change, Leave, whose state the receiver fills in.
  std::optional<Order> first(std::optional<Order> order);
  /// Has the state replicated again because it has changed.
  void renew() { is_replicated_ = false; }
  /// Returns the order that waited for the replication.
  std::optional<Order> take_held() { return std::exchange(held_, std::nullopt); }

  /// Called while all processes stand still: may this process lead? None: not answered yet.
  std::optional<bool> may_lead(Seconds now);
  /// Drops the question: the processes do not stand still.
  void forget() { asked_at_.reset(); }
  bool asks() { return std::exchange(asks_, false); }
  /// Enough hosts have confirmed.
  void hear() { is_lead_ = true; }

 private:
  const bool has_standbys_;
  bool is_replicated_ = false, asks_ = false, is_lead_ = false;
  std::optional<Order> held_;
  std::optional<Seconds> asked_at_;
};

}  // namespace motley::job
