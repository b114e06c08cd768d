#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "motley/adapt/option_source.h"

namespace motley::peers {

/// Given curves (of a profile or data sheet), corrected by observations: each device's by the
/// median ratio of its last steps' ends to its curve, a group's tail by the median of its last
/// steps' time beyond the devices. A correction takes effect when it differs by more than one
/// percent, so jitter changes nothing.
class ScaledOptions : public adapt::OptionSource {
 public:
  /// Usage error: that of verify_option.
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

  /// The last values, oldest first, and the one in use.
  struct Correction {
    std::vector<double> last;
    double used;
    bool operator==(const Correction&) const = default;
  };
  std::vector<adapt::BatchOption> given_, options_;
  std::vector<std::size_t> places_;  // of each option, among the given ones
  std::set<std::string> gone_;
  std::map<std::string, Correction> ratios_;  // by device
  std::vector<Correction> delays_;            // by given option, seconds
  std::int64_t version_ = 0;
};

}  // namespace motley::peers
