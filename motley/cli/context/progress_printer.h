#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "motley/cli/context/context.h"
#include "motley/control/listener.h"
#include "motley/control/outside.h"

namespace motley::cli {

/// Prints progress as the common flags say: notes and progress on stderr, redrawn in place on a
/// terminal; a phase's result on stdout with --print, and into --dump-dir ("04-synth.txt").
class ProgressPrinter : public control::Listener {
 public:
  explicit ProgressPrinter(const Context& context) : context_(context) {}
  ~ProgressPrinter() override;
  ProgressPrinter(const ProgressPrinter&) = delete;
  ProgressPrinter& operator=(const ProgressPrinter&) = delete;

  void note(const std::string& line) override;
  Result<void> phase(control::Phase phase, const std::function<std::string()>& text) override;
  control::Wish step(const control::StepReport& report) override;

  control::Outside outside() { return {*context_.workers, *context_.clock, *this}; }

 private:
  void clear();

  const Context& context_;
  std::optional<Seconds> last_;  // last output of progress
  bool is_drawn_ = false;
};

/// Checks --print and --stop-after. Usage error with a suggestion.
Result<void> check_phases(const Context& context);

/// Is this the error that ends the work after --stop-after's phase?
bool is_stop(const Error& error);

/// Returns "loss: 0.6931  step: 12 ms (plan 11 ms, +9.1%)  busy a:0 98% b:0 97%  eta 3.4 s".
std::string print_progress(const control::StepReport& report);

}  // namespace motley::cli
