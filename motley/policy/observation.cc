#include "motley/policy/observation.h"

#include <utility>

#include "motley/base/json.h"
#include "motley/policy/json_fields.h"

namespace motley::policy {
namespace {

Json write(const DeviceStep& step) {
  return {{"device", step.device},
          {"samples", step.samples},
          {"ready", step.ready},
          {"end", step.end},
          {"update", step.update}};
}

Json write(const StepSeen& seen) {
  Json devices = Json::array();
  for (const DeviceStep& device : seen.devices) devices.push_back(write(device));
  return {{"seen", "step"},
          {"step", seen.step},
          {"at", seen.at.value},
          {"took", seen.took.value},
          {"plan", seen.plan},
          {"global_batch", seen.global_batch},
          {"devices", std::move(devices)},
          {"exchange", seen.exchange},
          {"blocking", seen.blocking}};
}

Json write(const NoiseSeen& seen) {
  Json pieces = Json::array();
  for (const NoiseSeen::Piece& piece : seen.pieces)
    pieces.push_back({{"samples", piece.samples}, {"squared_norm", piece.squared_norm}});
  return {{"seen", "noise"},
          {"step", seen.step},
          {"squared_norm", seen.squared_norm},
          {"pieces", std::move(pieces)}};
}

Json write(const RefusalSeen& seen) {
  return {{"seen", "refusal"}, {"plan", seen.plan}, {"runs", seen.runs}, {"why", seen.why}};
}

Json write(const NoticeSeen& seen) {
  return {{"seen", "notice"},
          {"device", seen.device},
          {"at", seen.at.value},
          {"left", seen.left.value}};
}

Json write(const LossSeen& seen) {
  return {{"seen", "loss"},
          {"device", seen.device},
          {"at", seen.at.value},
          {"given_back", seen.was_given_back}};
}

Json write(const ArrivalSeen& seen) {
  return {{"seen", "arrival"}, {"device", seen.device}, {"at", seen.at.value}};
}

Json write(const PriceSeen& seen) {
  return {{"seen", "price"},     {"kind", seen.kind},         {"zone", seen.zone},
          {"at", seen.at.value}, {"per_hour", seen.per_hour}, {"spot", seen.is_spot}};
}

Json write(const MemorySeen& seen) {
  return {{"seen", "memory"}, {"device", seen.device}, {"most", seen.most}};
}

Result<DeviceStep> read_device(JsonObject& object) {
  DeviceStep step;
  MOTLEY_ASSIGN(step.device, object.string("device"));
  MOTLEY_ASSIGN(step.samples, object.integer("samples"));
  MOTLEY_ASSIGN(step.ready, read_numbers(object, "ready"));
  MOTLEY_ASSIGN(step.end, object.number("end"));
  MOTLEY_ASSIGN(step.update, read_numbers(object, "update"));
  return step;
}

Result<Observation> read_step(JsonObject& object) {
  StepSeen seen;
  MOTLEY_ASSIGN(seen.step, object.integer("step"));
  MOTLEY_ASSIGN(seen.at, read_seconds(object, "at"));
  MOTLEY_ASSIGN(seen.took, read_seconds(object, "took"));
  MOTLEY_ASSIGN(const std::int64_t plan, object.integer("plan"));
  seen.plan = static_cast<int>(plan);
  MOTLEY_ASSIGN(seen.global_batch, object.integer("global_batch"));
  MOTLEY_ASSIGN(seen.devices, read_list<DeviceStep>(object, "devices", read_device));
  MOTLEY_ASSIGN(seen.exchange, read_numbers(object, "exchange"));
  MOTLEY_ASSIGN(seen.blocking, object.number("blocking"));
  return seen;
}

Result<NoiseSeen::Piece> read_piece(JsonObject& object) {
  NoiseSeen::Piece piece;
  MOTLEY_ASSIGN(piece.samples, object.integer("samples"));
  MOTLEY_ASSIGN(piece.squared_norm, object.number("squared_norm"));
  return piece;
}

Result<Observation> read_noise(JsonObject& object) {
  NoiseSeen seen;
  MOTLEY_ASSIGN(seen.step, object.integer("step"));
  MOTLEY_ASSIGN(seen.squared_norm, object.number("squared_norm"));
  MOTLEY_ASSIGN(seen.pieces, read_list<NoiseSeen::Piece>(object, "pieces", read_piece));
  return seen;
}

Result<Observation> read_refusal(JsonObject& object) {
  RefusalSeen seen;
  MOTLEY_ASSIGN(const std::int64_t plan, object.integer("plan"));
  MOTLEY_ASSIGN(const std::int64_t runs, object.integer("runs"));
  seen.plan = static_cast<int>(plan);
  seen.runs = static_cast<int>(runs);
  MOTLEY_ASSIGN(seen.why, object.string("why"));
  return seen;
}

Result<Observation> read_notice(JsonObject& object) {
  NoticeSeen seen;
  MOTLEY_ASSIGN(seen.device, object.string("device"));
  MOTLEY_ASSIGN(seen.at, read_seconds(object, "at"));
  MOTLEY_ASSIGN(seen.left, read_seconds(object, "left"));
  return seen;
}

Result<Observation> read_loss(JsonObject& object) {
  LossSeen seen;
  MOTLEY_ASSIGN(seen.device, object.string("device"));
  MOTLEY_ASSIGN(seen.at, read_seconds(object, "at"));
  MOTLEY_ASSIGN(seen.was_given_back, object.boolean("given_back"));
  return seen;
}

Result<Observation> read_arrival(JsonObject& object) {
  ArrivalSeen seen;
  MOTLEY_ASSIGN(seen.device, object.string("device"));
  MOTLEY_ASSIGN(seen.at, read_seconds(object, "at"));
  return seen;
}

Result<Observation> read_price(JsonObject& object) {
  PriceSeen seen;
  MOTLEY_ASSIGN(seen.kind, object.string("kind"));
  MOTLEY_ASSIGN(seen.zone, object.string("zone"));
  MOTLEY_ASSIGN(seen.at, read_seconds(object, "at"));
  MOTLEY_ASSIGN(seen.per_hour, object.number("per_hour"));
  MOTLEY_ASSIGN(seen.is_spot, object.boolean("spot"));
  return seen;
}

Result<Observation> read_memory(JsonObject& object) {
  MemorySeen seen;
  MOTLEY_ASSIGN(seen.device, object.string("device"));
  MOTLEY_ASSIGN(seen.most, object.integer("most"));
  return seen;
}

constexpr Kind<Observation> kObservationKinds[] = {
    {"step", read_step},     {"noise", read_noise},   {"refusal", read_refusal},
    {"notice", read_notice}, {"loss", read_loss},     {"arrival", read_arrival},
    {"price", read_price},   {"memory", read_memory},
};

}  // namespace

Json observation_to_json(const Observation& observation) {
  return std::visit([](const auto& seen) { return write(seen); }, observation);
}

Result<Observation> observation_from_json(const Json& json, const std::string& where) {
  return read_kind<Observation>(json, where, "seen", kObservationKinds);
}

}  // namespace motley::policy
