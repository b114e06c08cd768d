#include "motley/adapt/baseline.h"

#include <utility>

#include "motley/base/json.h"
#include "motley/policy/json_fields.h"

namespace motley::adapt {

Baseline::Baseline(std::string_view name, std::vector<DeviceLimits> devices)
    : name_(name), devices_(std::move(devices)) {}

std::vector<policy::Choice> Baseline::observe(const policy::Observation& observation) {
  const auto* seen = std::get_if<policy::StepSeen>(&observation);
  if (seen == nullptr || seen->devices.empty()) return {};
  learn(*seen);
  if (asked_.waits(*seen)) return {};
  const std::vector<std::int64_t> now = samples_in(*seen, devices_);
  Wish wanted = wish(*seen, now);
  if (wanted.samples.empty() || wanted.samples == now) return {};
  std::vector<policy::Share> shares = make_shares(devices_, wanted.samples);
  asked_.ask(shares, seen->step);
  return {{policy::UseSplit{std::move(shares)}, std::nullopt, std::move(wanted.why)}};
}

Json Baseline::learned() const { return Json::object(); }

Result<void> Baseline::restore_learned(const Json& json, const std::string& where) {
  MOTLEY_ASSIGN(const JsonObject object, JsonObject::make(json, where));
  return object.refuse_unknown();
}

Json Baseline::state() const {
  return {{"schema", "motley." + std::string(name_) + "/1"},
          {"asked", asked_.state()},
          {"learned", learned()}};
}

Result<void> Baseline::restore(const Json& state, const std::string& where) {
  const std::string schema = "motley." + std::string(name_) + "/1";
  MOTLEY_ASSIGN(JsonObject object, policy::open_state(state, schema, where));
  MOTLEY_ASSIGN(const Json* asked, object.member("asked"));
  MOTLEY_RETURN_IF_ERROR(asked_.restore(*asked, where + ": asked"));
  MOTLEY_ASSIGN(const Json* learned, object.member("learned"));
  MOTLEY_RETURN_IF_ERROR(restore_learned(*learned, where + ": learned"));
  return object.refuse_unknown();
}

}  // namespace motley::adapt
