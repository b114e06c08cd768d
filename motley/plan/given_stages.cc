#include "motley/plan/given_stages.h"

#include <fmt/format.h>

#include "motley/base/json.h"

namespace motley::plan {
namespace {

Result<GivenStage> stage_from_json(JsonObject& object) {
  GivenStage stage;
  MOTLEY_ASSIGN(stage.devices, object.strings("devices"));
  if (stage.devices.empty())
    return usage_error("plan.stages", object.where() + ": devices: found none");
  MOTLEY_ASSIGN(const Json* layers, object.member("layers"));
  const auto is_number = [](const Json& json) { return json.is_number_unsigned(); };
  if (layers->is_string())
    stage.layers = layers->get<std::string>();
  else if (layers->is_array() && layers->size() == 2 && is_number((*layers)[0]) &&
           is_number((*layers)[1]))
    stage.layers = std::pair((*layers)[0].get<std::size_t>(), (*layers)[1].get<std::size_t>());
  else
    return usage_error("plan.stages",
                       fmt::format("{}: layers: found {}, wanted names (\"emb to h.3\") or the "
                                   "numbers of the first and the last ([0, 3])",
                                   object.where(), layers->dump()));
  if (object.has("recompute")) {
    MOTLEY_ASSIGN(stage.recomputes, object.boolean("recompute"));
  }
  return stage;
}

/// Reads a count of a replica, which its first stage gives.
Result<void> read_count(JsonObject& object, const std::string& key, bool is_first,
                        std::int64_t& count) {
  if (!object.has(key)) return {};
  MOTLEY_ASSIGN(const std::int64_t found, object.integer(key));
  if (found < 1 || (!is_first && found != count))
    return usage_error(
        "plan.stages",
        fmt::format("{}: {}: found {}, wanted {}", object.where(), key, found,
                    is_first ? "1 or more" : fmt::format("{} as the replica's first", count)));
  count = found;
  return {};
}

Result<void> add_stage(const Json& json, const std::string& where,
                       std::vector<GivenReplica>& replicas) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, where));
  std::int64_t replica = replicas.empty() ? 0 : static_cast<std::int64_t>(replicas.size()) - 1;
  if (object.has("replica")) {
    MOTLEY_ASSIGN(replica, object.integer("replica"));
  }
  const auto known = static_cast<std::int64_t>(replicas.size());
  if (replica != known && (known == 0 || replica != known - 1))
    return usage_error("plan.stages",
                       fmt::format("{}: replica {}, wanted them in order from 0", where, replica));
  const bool is_first = replica == known;
  if (is_first) replicas.emplace_back();
  GivenReplica& made = replicas.back();
  const auto place = static_cast<std::int64_t>(made.stages.size());
  if (object.has("stage")) {
    MOTLEY_ASSIGN(const std::int64_t stage, object.integer("stage"));
    if (stage != place)
      return usage_error("plan.stages",
                         fmt::format("{}: stage {}, wanted {}", where, stage, place));
  }
  MOTLEY_RETURN_IF_ERROR(read_count(object, "samples", is_first, made.samples));
  MOTLEY_RETURN_IF_ERROR(read_count(object, "micro_batches", is_first, made.micro_batches));
  MOTLEY_ASSIGN(GivenStage stage, stage_from_json(object));
  made.stages.push_back(std::move(stage));
  return object.refuse_unknown();
}

}  // namespace

Result<std::vector<GivenReplica>> parse_given_stages(std::string_view text,
                                                     const std::string& name) {
  MOTLEY_ASSIGN(const Json json, parse_json(text, name));
  const Json* stages = &json;
  if (json.is_object() && json.contains("stages")) stages = &json["stages"];
  if (!stages->is_array() || stages->empty())
    return usage_error("plan.stages",
                       name + ": wanted a list of stages, as motley plan --json has it");
  std::vector<GivenReplica> replicas;
  for (std::size_t i = 0; i < stages->size(); ++i)
    MOTLEY_RETURN_IF_ERROR(
        add_stage((*stages)[i], fmt::format("{}: stages[{}]", name, i), replicas));
  return replicas;
}

}  // namespace motley::plan
