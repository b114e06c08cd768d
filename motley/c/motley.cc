#include "motley/c/motley.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "motley/adapt/policies.h"
#include "motley/base/json.h"
#include "motley/cluster/host_limits.h"
#include "motley/policy/policy.h"

struct motley_policy {
  std::unique_ptr<motley::policy::Policy> policy;
};

namespace motley {
namespace {

char* give(const Json& json) {
  // The caller's names may be invalid UTF-8; the text is printed all the same.
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  auto* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy != nullptr) std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

char* give(const Result<Json>& result) {
  if (result) return give(*result);
  return give(
      Json{{"error", {{"code", result.error().code}, {"message", result.error().message}}}});
}

struct Weighted {
  adapt::DeviceLimits limits;
  double weight = 1;
};

/// Reads `device`, `least`, `most` and, with `has_weights`, `weight` of each device.
Result<std::vector<Weighted>> read_devices(JsonObject& object, bool has_weights) {
  MOTLEY_ASSIGN(const Json* list, object.member("devices"));
  if (!list->is_array() || list->empty())
    return usage_error("json.type", object.where() + ": key 'devices': wanted a list of devices");
  std::vector<Weighted> devices;
  for (const Json& json : *list) {
    MOTLEY_ASSIGN(JsonObject each, JsonObject::make(json, object.where() + ": devices"));
    Weighted& device = devices.emplace_back();
    MOTLEY_ASSIGN(device.limits.device, each.string("device"));
    MOTLEY_ASSIGN(device.limits.least, each.integer("least"));
    MOTLEY_ASSIGN(device.limits.most, each.integer("most"));
    if (has_weights) {
      MOTLEY_ASSIGN(device.weight, each.number("weight"));
    }
    MOTLEY_RETURN_IF_ERROR(each.refuse_unknown());
    if (device.limits.least < 0 || device.limits.most < device.limits.least ||
        device.limits.most > adapt::kNoMost || !(device.weight > 0))
      return usage_error(
          "c.limits",
          fmt::format("{}: device '{}': wanted 0 <= least <= most <= {} and a weight above 0",
                      object.where(), device.limits.device, adapt::kNoMost));
  }
  return devices;
}

Result<Json> make_policy(const char* text, motley_policy** made) {
  MOTLEY_ASSIGN(const Json json, parse_json(text, "setting"));
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, "setting"));
  MOTLEY_ASSIGN(const std::string name, object.string("policy"));
  MOTLEY_ASSIGN(std::vector<Weighted> devices, read_devices(object, false));
  adapt::SplitSetting setting;
  for (Weighted& device : devices) setting.devices.push_back(std::move(device.limits));
  if (object.has("change_cost_s")) {
    MOTLEY_ASSIGN(const double seconds, object.number("change_cost_s"));
    setting.change_cost = Seconds(seconds);
  }
  if (object.has("epoch_steps")) {
    MOTLEY_ASSIGN(setting.epoch_steps, object.integer("epoch_steps"));
  }
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  MOTLEY_ASSIGN(auto policy, adapt::make_split_policy(name, setting));
  *made = new motley_policy{std::move(policy)};
  return Json::object();
}

Result<Json> observe(motley_policy& policy, const char* text) {
  MOTLEY_ASSIGN(const Json json, parse_json(text, "observation"));
  MOTLEY_ASSIGN(const policy::Observation seen, policy::observation_from_json(json, "observation"));
  Json choices = Json::array();
  for (const policy::Choice& choice : policy.policy->observe(seen))
    choices.push_back({{"action", policy::action_to_json(choice.action)},
                       {"expected_s", choice.expected ? Json(choice.expected->value) : Json()},
                       {"why", choice.why}});
  return Json{{"choices", std::move(choices)}};
}

Result<Json> share_batch(const char* text) {
  MOTLEY_ASSIGN(const Json json, parse_json(text, "question"));
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, "question"));
  MOTLEY_ASSIGN(const std::int64_t batch, object.integer("batch"));
  MOTLEY_ASSIGN(std::vector<Weighted> devices, read_devices(object, true));
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  std::vector<adapt::DeviceLimits> limits;
  std::vector<double> weights;
  std::int64_t least = 0, most = 0;
  for (Weighted& device : devices) {
    least += device.limits.least;
    most = std::min(most + device.limits.most, adapt::kNoMost);
    weights.push_back(device.weight);
    limits.push_back(std::move(device.limits));
  }
  if (batch < least || batch > most)
    return usage_error("c.limits", fmt::format("a batch of {} samples: the devices take from {} "
                                               "to {} together",
                                               batch, least, most));
  return Json{{"samples", adapt::weighted_samples(limits, weights, batch)}};
}

}  // namespace
}  // namespace motley

char* motley_make_split_policy(const char* setting, motley_policy** made) {
  return motley::give(motley::make_policy(setting, made));
}

char* motley_observe(motley_policy* policy, const char* observation) {
  return motley::give(motley::observe(*policy, observation));
}

void motley_drop_policy(motley_policy* policy) { delete policy; }

char* motley_share_batch(const char* question) {
  return motley::give(motley::share_batch(question));
}

char* motley_host_limits(void) {
  const auto limits = motley::cluster::find_host_limits(motley::cluster::read_host_file);
  return motley::give({{"cpu_quota", limits.cpu_quota ? motley::Json(*limits.cpu_quota) : nullptr},
                       {"memory", limits.memory ? motley::Json(limits.memory->value) : nullptr}});
}

void motley_free(char* text) { std::free(text); }
