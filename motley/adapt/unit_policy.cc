#include "motley/adapt/unit_policy.h"

#include <fmt/format.h>

#include <variant>

#include "motley/policy/json_fields.h"

namespace motley::adapt {
namespace {

constexpr const char* kUnitVersion = "motley.micro-batches/1";

}  // namespace

std::vector<policy::Choice> UnitPolicy::observe(const policy::Observation& observation) {
  policy::Observation seen = observation;
  if (auto* step = std::get_if<policy::StepSeen>(&seen)) {
    step->global_batch /= unit_;
    for (policy::DeviceStep& device : step->devices) device.samples /= unit_;
  }
  if (auto* memory = std::get_if<policy::MemorySeen>(&seen)) memory->most /= unit_;
  std::vector<policy::Choice> choices = policy_->observe(seen);
  for (policy::Choice& choice : choices)
    if (auto* split = std::get_if<policy::UseSplit>(&choice.action))
      for (policy::Share& share : split->shares) share.samples *= unit_;
  return choices;
}

Json UnitPolicy::state() const {
  return {{"schema", kUnitVersion}, {"micro_batches", unit_}, {"policy", policy_->state()}};
}

Result<void> UnitPolicy::restore(const Json& state, const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, policy::open_state(state, kUnitVersion, where));
  MOTLEY_ASSIGN(const std::int64_t unit, object.integer("micro_batches"));
  MOTLEY_ASSIGN(const Json* own, object.member("policy"));
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  if (unit != unit_)
    return usage_error(
        "policy.state",
        fmt::format("{}: it is of steps in {} micro-batches, this training's have {}", where, unit,
                    unit_));
  return policy_->restore(*own, where + ": policy");
}

}  // namespace motley::adapt
