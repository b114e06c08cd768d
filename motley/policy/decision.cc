#include "motley/policy/decision.h"

#include <utility>

#include "motley/base/json.h"
#include "motley/policy/json_fields.h"

namespace motley::policy {
namespace {

Json write_optional(const std::optional<Seconds>& time) {
  return time ? Json(time->value) : Json(nullptr);
}

Result<std::optional<Seconds>> read_optional(JsonObject& object, const std::string& key) {
  MOTLEY_ASSIGN(const Json* value, object.member(key));
  if (value->is_null()) return std::nullopt;
  MOTLEY_ASSIGN(const Seconds time, read_seconds(object, key));
  return time;
}

constexpr const char* kAlternatives = "alternatives";

Result<Alternative> read_alternative(JsonObject& object) {
  Alternative each;
  MOTLEY_ASSIGN(each.what, object.string("what"));
  MOTLEY_ASSIGN(each.time, read_seconds(object, "time_s"));
  MOTLEY_ASSIGN(each.cost, object.number("cost"));
  return each;
}

}  // namespace

Json alternatives_to_json(const std::vector<Alternative>& alternatives) {
  Json list = Json::array();
  for (const Alternative& each : alternatives)
    list.push_back({{"what", each.what}, {"time_s", each.time.value}, {"cost", each.cost}});
  return list;
}

std::string print_decision(const Decision& decision) {
  Json json{{"policy", decision.policy},
            {"seen_step", decision.seen_step},
            {"at", decision.at.value},
            {"action", action_to_json(decision.choice.action)},
            {"expected_s", write_optional(decision.choice.expected)},
            {"why", decision.choice.why},
            {"begins", decision.begins},
            {"came_s", write_optional(decision.came)},
            {"before_s", write_optional(decision.before)},
            {"plan", decision.plan}};
  if (!decision.choice.alternatives.empty())
    json[kAlternatives] = alternatives_to_json(decision.choice.alternatives);
  return json.dump();
}

Result<Decision> parse_decision(std::string_view line, const std::string& where) {
  MOTLEY_ASSIGN(const Json json, parse_json(line, where));
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, where));
  Decision decision;
  MOTLEY_ASSIGN(decision.policy, object.string("policy"));
  MOTLEY_ASSIGN(decision.seen_step, object.integer("seen_step"));
  MOTLEY_ASSIGN(decision.at, read_seconds(object, "at"));
  MOTLEY_ASSIGN(const Json* action, object.member("action"));
  MOTLEY_ASSIGN(decision.choice.action, action_from_json(*action, where));
  MOTLEY_ASSIGN(decision.choice.expected, read_optional(object, "expected_s"));
  MOTLEY_ASSIGN(decision.choice.why, object.string("why"));
  MOTLEY_ASSIGN(decision.begins, object.integer("begins"));
  MOTLEY_ASSIGN(decision.came, read_optional(object, "came_s"));
  MOTLEY_ASSIGN(decision.before, read_optional(object, "before_s"));
  MOTLEY_ASSIGN(decision.plan, object.string("plan"));
  if (object.has(kAlternatives)) {
    MOTLEY_ASSIGN(decision.choice.alternatives,
                  read_list<Alternative>(object, kAlternatives, read_alternative));
  }
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  return decision;
}

}  // namespace motley::policy
