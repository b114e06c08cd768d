#include <string>
#include <utility>
#include <vector>

#include "motley/adapt/split_policy.h"
#include "motley/base/json.h"
#include "motley/policy/json_fields.h"

// The text form of what a training's split was learned from.

namespace motley::adapt {
namespace {

constexpr const char* kVersion = "motley.split/2";

}  // namespace

Json SplitPolicy::state() const {
  Json devices = Json::array();
  for (std::size_t i = 0; i < devices_.size(); ++i)
    devices.push_back({{"device", devices_[i].device},
                       {"learned", curves_[i].state()},
                       {"told", is_told_[i] != 0},
                       {"gone", is_gone_[i] != 0}});
  return {{"schema", kVersion},
          {"devices", std::move(devices)},
          {"exchanges", exchanges_.state()},
          {"lost", lost_},
          {"asked", asked_.state()}};
}

Result<void> SplitPolicy::restore(const Json& state, const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, policy::open_state(state, kVersion, where));
  MOTLEY_ASSIGN(const Json* devices, object.member("devices"));
  for (const Json& json : *devices) {
    MOTLEY_ASSIGN(JsonObject each, JsonObject::make(json, where + ": devices"));
    MOTLEY_ASSIGN(const std::string device, each.string("device"));
    std::size_t i = 0;
    while (i < devices_.size() && devices_[i].device != device) ++i;
    if (i == devices_.size()) add({.device = device});
    MOTLEY_ASSIGN(const Json* learned, each.member("learned"));
    MOTLEY_RETURN_IF_ERROR(curves_[i].restore(*learned, where + ": " + device));
    MOTLEY_ASSIGN(const bool is_told, each.boolean("told"));
    MOTLEY_ASSIGN(const bool is_gone, each.boolean("gone"));
    is_told_[i] = static_cast<char>(is_told);
    is_gone_[i] = static_cast<char>(is_gone);
    MOTLEY_RETURN_IF_ERROR(each.refuse_unknown());
  }
  MOTLEY_ASSIGN(const Json* exchanges, object.member("exchanges"));
  MOTLEY_RETURN_IF_ERROR(exchanges_.restore(*exchanges, where + ": exchanges"));
  if (object.has("lost")) {  // older states have none
    MOTLEY_ASSIGN(lost_, object.number("lost"));
  }
  MOTLEY_ASSIGN(const Json* asked, object.member("asked"));
  MOTLEY_RETURN_IF_ERROR(asked_.restore(*asked, where + ": asked"));
  return object.refuse_unknown();
}

}  // namespace motley::adapt
