#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "motley/adapt/device_limits.h"
#include "motley/policy/policy.h"

namespace motley::adapt {

/// Base of other tools' policies: requests the wanted split unless it runs or a request is pending.
class Baseline : public policy::Policy {
 public:
  Baseline(std::string_view name, std::vector<DeviceLimits> devices);

  std::string_view name() const override { return name_; }
  std::vector<policy::Choice> observe(const policy::Observation& observation) override;
  Json state() const override;
  Result<void> restore(const Json& state, const std::string& where) override;

 protected:
  const std::vector<DeviceLimits>& devices() const { return devices_; }
  virtual void learn(const policy::StepSeen&) {}
  /// Samples of each device in the next steps, and why; empty: unchanged.
  struct Wish {
    std::vector<std::int64_t> samples;
    std::string why;
  };
  virtual Wish wish(const policy::StepSeen& seen, const std::vector<std::int64_t>& now) = 0;
  virtual Json learned() const;
  virtual Result<void> restore_learned(const Json& json, const std::string& where);

 private:
  std::string_view name_;
  std::vector<DeviceLimits> devices_;
  AskedSplit asked_;
};

}  // namespace motley::adapt
