#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/control/run_directory.h"
#include "motley/control/wish.h"

namespace motley::control {

/// What lies between two steps of the composer and has a text form (docs/architecture.md).
enum class Phase { kLoad, kPrice, kSearch, kSynth, kSimulate };
/// "load", "price", ...
std::string_view phase_name(Phase phase);

/// A training step that all ranks have done.
struct StepReport {
  std::int64_t step = 0;   ///< from 0
  std::int64_t steps = 0;  ///< that are to be done in total
  LoggedStep logged;
  Seconds usual;  ///< median of the last 20 steps
  std::optional<Seconds> predicted;
  std::vector<std::string> devices;  ///< by rank
};

/// To whom the composer says what it does, while it does it. Called from the thread that called the
/// composer; it waits for the answer.
class Listener {
 public:
  virtual ~Listener() = default;
  /// A line for people: what begins now, or what went wrong without harm ("warning: ...").
  virtual void note(const std::string& line) = 0;
  /// A phase's result is there; `text` prints it, which may take long. An error ends what the
  /// composer does: nothing behind this phase is wanted.
  virtual Result<void> phase(Phase phase, const std::function<std::string()>& text) = 0;
  /// A training step is done.
  virtual Wish step(const StepReport& report) = 0;
};

/// Hears nothing and lets all go on.
class SilentListener : public Listener {
 public:
  void note(const std::string&) override {}
  Result<void> phase(Phase, const std::function<std::string()>&) override { return {}; }
  Wish step(const StepReport&) override { return Wish::kGoOn; }
};

}  // namespace motley::control
