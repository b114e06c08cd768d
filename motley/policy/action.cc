#include "motley/policy/action.h"

#include <utility>

#include "motley/base/json.h"
#include "motley/policy/json_fields.h"

namespace motley::policy {
namespace {

Json write_shares(const std::vector<Share>& shares) {
  Json list = Json::array();
  for (const Share& share : shares)
    list.push_back({{"device", share.device}, {"samples", share.samples}});
  return list;
}

Json write(const UsePlan& action) { return {{"do", "plan"}, {"plan", action.plan}}; }

Json write(const UseSplit& action) {
  return {{"do", "split"}, {"shares", write_shares(action.shares)}};
}

Json write(const UseBatch& action) {
  return {
      {"do", "batch"}, {"shares", write_shares(action.shares)}, {"lr_factor", action.lr_factor}};
}

Json write(const Save&) { return {{"do", "save"}}; }

Json write(const Rent& action) {
  return {{"do", "rent"},
          {"kind", action.kind},
          {"zone", action.zone},
          {"spot", action.spot},
          {"count", action.count}};
}

Json write(const Tell& action) {
  return {{"do", "tell"}, {"device", action.device}, {"text", action.text}};
}

Json write(const MeasureNoise& action) { return {{"do", "noise"}, {"every", action.every}}; }

Result<Share> read_share(JsonObject& object) {
  Share share;
  MOTLEY_ASSIGN(share.device, object.string("device"));
  MOTLEY_ASSIGN(share.samples, object.integer("samples"));
  return share;
}

Result<Action> read_plan(JsonObject& object) {
  MOTLEY_ASSIGN(const std::int64_t plan, object.integer("plan"));
  return UsePlan{static_cast<int>(plan)};
}

Result<Action> read_split(JsonObject& object) {
  UseSplit action;
  MOTLEY_ASSIGN(action.shares, read_list<Share>(object, "shares", read_share));
  return action;
}

Result<Action> read_batch(JsonObject& object) {
  UseBatch action;
  MOTLEY_ASSIGN(action.shares, read_list<Share>(object, "shares", read_share));
  MOTLEY_ASSIGN(action.lr_factor, object.number("lr_factor"));
  return action;
}

Result<Action> read_save(JsonObject&) { return Save{}; }

Result<Action> read_rent(JsonObject& object) {
  Rent action;
  MOTLEY_ASSIGN(action.kind, object.string("kind"));
  MOTLEY_ASSIGN(action.zone, object.string("zone"));
  MOTLEY_ASSIGN(action.spot, object.boolean("spot"));
  MOTLEY_ASSIGN(const std::int64_t count, object.integer("count"));
  action.count = static_cast<int>(count);
  return action;
}

Result<Action> read_tell(JsonObject& object) {
  Tell action;
  MOTLEY_ASSIGN(action.device, object.string("device"));
  MOTLEY_ASSIGN(action.text, object.string("text"));
  return action;
}

Result<Action> read_measuring(JsonObject& object) {
  MeasureNoise action;
  MOTLEY_ASSIGN(action.every, object.integer("every"));
  return action;
}

constexpr Kind<Action> kActionKinds[] = {
    {"plan", read_plan}, {"split", read_split}, {"batch", read_batch},     {"save", read_save},
    {"rent", read_rent}, {"tell", read_tell},   {"noise", read_measuring},
};

}  // namespace

Json action_to_json(const Action& action) {
  return std::visit([](const auto& each) { return write(each); }, action);
}

Result<Action> action_from_json(const Json& json, const std::string& where) {
  return read_kind<Action>(json, where, "do", kActionKinds);
}

}  // namespace motley::policy
