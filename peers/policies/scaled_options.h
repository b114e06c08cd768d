#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "motley/adapt/option_source.h"

namespace motley::peers {

/// Curves that are given (of a profile or data sheet), corrected by what was seen: each device's by
/// the median ratio of its last steps' ends to its curve, a group's tail by the median of what its
/// last steps took beyond it. A correction is taken up where it differs by more than one percent,
/// so jitter changes nothing.
class ScaledOptions : public adapt::OptionSource {
 public:
  /// Usage error of verify_option.
  static Result<ScaledOptions> make(std::vector<adapt::BatchOption> options);

  void observe(const policy::StepSeen& step) override;
  void set_present(const std::string& device, bool is_there) override;
  const std::vector<adapt::BatchOption>& options() const override { return options_; }
  std::int64_t version() const override { return version_; }
  Json state() const override;
  Result<void> restore(const Json& state, const std::string& where) override;

 private:
  explicit ScaledOptions(std::vector<adapt::BatchOption> options);
  void apply();

  /// The last values, oldest first, and what is used.
  struct Correction {
    std::vector<double> last;
    double used;
    bool operator==(const Correction&) const = default;
  };
  std::vector<adapt::BatchOption> given_, options_;
  std::vector<std::size_t> places_;  // of each option, among those that were given
  std::set<std::string> gone_;
  std::map<std::string, Correction> ratios_;  // by device
  std::vector<Correction> delays_;            // by option that was given, seconds
  std::int64_t version_ = 0;
};

}  // namespace motley::peers
