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

/// The results between the composer's steps that have a text form (docs/architecture.md).
enum class Phase { kLoad, kPrice, kSearch, kSynth, kSimulate };
std::string_view phase_name(Phase phase);

/// A training step that all ranks have completed.
struct StepReport {
  std::int64_t step = 0;
  std::int64_t steps = 0;  ///< total of the training
  LoggedStep logged;
  Seconds usual;  ///< median of the last 20 steps
  std::optional<Seconds> predicted;
  std::vector<std::string> devices;  ///< by rank
};

/// Receives progress. Calls come from the composer's thread, which waits for the answer.
class Listener {
 public:
  virtual ~Listener() = default;
  /// A line for people: what begins now, or a harmless problem ("warning: ...").
  virtual void note(const std::string& line) = 0;
  /// `text` prints the phase's result, which may be slow. An error ends the composer's work.
  virtual Result<void> phase(Phase phase, const std::function<std::string()>& text) = 0;
  virtual Wish step(const StepReport& report) = 0;
};

class SilentListener : public Listener {
 public:
  void note(const std::string&) override {}
  Result<void> phase(Phase, const std::function<std::string()>&) override { return {}; }
  Wish step(const StepReport&) override { return Wish::kGoOn; }
};

}  // namespace motley::control
