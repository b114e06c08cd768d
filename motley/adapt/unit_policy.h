#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "motley/policy/policy.h"

namespace motley::adapt {

/// Adapts a split policy to steps of several equal micro-batches: it sees and requests the samples
/// of one micro-batch with the times of whole steps. So each device gets a multiple, and any split
/// of whole samples stays valid.
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
