#pragma once

#include <algorithm>
#include <utility>

#include "motley/base/result.h"
#include "motley/run/hosts/elapsed.h"

namespace motley::run {

/// How likely a failure is the cause rather than a consequence, in rising order.
enum class Blame { kNone, kConsequence, kError, kDeath };

/// The failure of a job: the gravest that was reported until all workers have ended. When one
/// worker dies, the others report lost peers, often before its death is seen.
class Failure {
 public:
  /// `kill_after_s`: seconds that survivors have to end by themselves.
  explicit Failure(double kill_after_s) : kill_after_s_(kill_after_s) {}
  void blame(Blame blame, Error error) {
    if (!is_any()) since_ = Clock::now();
    if (blame <= blame_) return;
    blame_ = blame;
    error_ = std::move(error);
  }
  /// Gives survivors no more than these seconds.
  void hurry(double seconds) { kill_after_s_ = std::min(kill_after_s_, seconds); }
  bool is_any() const { return blame_ != Blame::kNone; }
  /// Tells whether survivors had their time since the first failure; later ones follow from it.
  bool is_overdue() const { return is_any() && seconds_since(since_) >= kill_after_s_; }
  /// Returns the gravest error, the first of equals.
  const Error& error() const { return error_; }

 private:
  double kill_after_s_;
  Blame blame_ = Blame::kNone;
  Error error_;
  Clock::time_point since_;
};

}  // namespace motley::run
