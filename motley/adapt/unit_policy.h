#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "motley/policy/policy.h"

namespace motley::adapt {

/// A policy of the split for steps in several equal micro-batches: what it sees and asks for are
/// the samples of one of them, its times are those of whole steps. So what a device is given is a
/// multiple, and any split of whole samples is as good as it was.
///
///   4 micro-batches, 12 and 4 samples a step: the other policy sees 3 and 1 of 4
class UnitPolicy : public policy::Policy {
 public:
  UnitPolicy(std::unique_ptr<policy::Policy> policy, std::int64_t micro_batches)
      : policy_(std::move(policy)), unit_(micro_batches) {}

  std::string_view name() const override { return policy_->name(); }
  std::vector<policy::Choice> observe(const policy::Observation& observation) override;
  Json state() const override;
  Result<void> restore(const Json& state, const std::string& where) override;

 private:
  std::unique_ptr<policy::Policy> policy_;
  std::int64_t unit_;
};

}  // namespace motley::adapt
