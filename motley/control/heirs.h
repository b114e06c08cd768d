#pragma once

#include <functional>
#include <optional>
#include <utility>

#include "motley/base/json.h"
#include "motley/base/units.h"
#include "motley/control/workers.h"

namespace motley::control {

/// When a job leaves with other hosts what another lead would need: before each change is told to
/// anybody, and when all stand still, to hear whether enough of them have this process for their
/// lead.
class Heirs {
 public:
  explicit Heirs(bool are_there) : are_there_(are_there) {}

  /// What is to be done first: this order, or, before a change, to leave what `will` says.
  std::optional<Order> first(std::optional<Order> order, const std::function<Json()>& will);
  /// What was left is not all that there is to know any more.
  void renew() { has_left_ = false; }
  /// An order that had to wait for that.
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
  const bool are_there_;
  bool has_left_ = false, asks_ = false, is_lead_ = false;
  std::optional<Order> held_;
  std::optional<Seconds> asked_at_;
};

}  // namespace motley::control
