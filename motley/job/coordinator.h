#pragma once

#include <optional>
#include <utility>

#include "motley/base/units.h"
#include "motley/job/order.h"

namespace motley::job {

/// Decides when the process that leads a job replicates its state to standby hosts, one of which
/// takes over when it is lost (run/launch/agent_takeover.h): before a change is told to anybody,
/// and when all stand still, to hear whether enough hosts still have this process for their lead.
class Coordinator {
 public:
  explicit Coordinator(bool has_standbys) : has_standbys_(has_standbys) {}

  /// Returns what is to be done first: this order, or, before a change, to replicate the state,
  /// which is put in by who gets that.
  std::optional<Order> first(std::optional<Order> order);
  /// Has the state replicated again: what was sent is not all that there is to know any more.
  void renew() { is_replicated_ = false; }
  /// Returns an order that had to wait for that.
  std::optional<Order> take_held() { return std::exchange(held_, std::nullopt); }

  /// All stand still. None: may this process lead? is asked, or not answered yet.
  std::optional<bool> may_lead(Seconds now);
  /// They do not, or no more.
  void forget() { asked_at_.reset(); }
  /// Is it to be asked now?
  bool asks() { return std::exchange(asks_, false); }
  /// Enough hosts say so.
  void hear() { is_lead_ = true; }

 private:
  const bool has_standbys_;
  bool is_replicated_ = false, asks_ = false, is_lead_ = false;
  std::optional<Order> held_;
  std::optional<Seconds> asked_at_;
};

}  // namespace motley::job
