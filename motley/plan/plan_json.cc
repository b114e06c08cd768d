#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <type_traits>
#include <utility>

#include "motley/base/json.h"
#include "motley/base/text.h"
#include "motley/plan/plan.h"

namespace motley::plan {
namespace {

constexpr std::string_view kSchema = "motley.plan/1";

Json ranges_to_json(const std::vector<OpRange>& ranges) {
  Json json = Json::array();
  for (const OpRange& range : ranges)
    json.push_back(fmt::format("{}-{}", range.first, range.end - 1));
  return json;
}

Json region_to_json(const Region& region, const cluster::Cluster& cluster) {
  Json json = Json::object();
  json["devices"] = Json::array();
  for (const DeviceId device : region.devices) {
    json["devices"].push_back(cluster.device(device).name);
  }
  json["shares"] = region.shares;
  if (!region.covers.empty()) json["covers"] = ranges_to_json(region.covers);
  if (region.ahead != 0) json["ahead"] = region.ahead;
  if (region.speed != 1) json["speed"] = region.speed;
  if (region.lag != 0) json["lag"] = region.lag;
  if (!region.recomputes.empty()) json["recompute"] = ranges_to_json(region.recomputes);
  if (region.late_weights) json["late_weights"] = true;
  if (region.turns != 1) json["turns"] = region.turns;
  // Absent where one device runs everything, so that plans from before sharded regions stay equal.
  if (region.operators.empty() && region.parameters.empty()) return json;
  json["operators"] = Json::array();
  for (const OperatorSplit& split : region.operators)
    json["operators"].push_back(print_split(split));
  json["parameters"] = Json::object();
  for (const KeptParameter& parameter : region.parameters)
    json["parameters"][parameter.name] = print_form(parameter.form);
  for (const KeptParameter& parameter : region.parameters)
    if (parameter.is_gathered_again) json["gather_again"].push_back(parameter.name);
  if (region.exchanges.empty()) return json;
  json["exchanges"] = Json::array();
  for (const ExchangeWay& way : region.exchanges)
    json["exchanges"].push_back({{"operator", way.op},
                                 {"bytes", way.bytes.value},
                                 {"largest", way.largest},
                                 {"method", exchange_method_name(way.method)}});
  return json;
}

Json replica_to_json(const Replica& replica, const cluster::Cluster& cluster) {
  Json json = Json::object();
  json["samples"] = replica.samples;
  // Absent means 1, so that older plans keep their texts.
  if (replica.micro_batches != 1) json["micro_batches"] = replica.micro_batches;
  if (replica.turns != 1) json["turns"] = replica.turns;
  json["regions"] = Json::array();
  for (const Region& region : replica.regions) {
    json["regions"].push_back(region_to_json(region, cluster));
  }
  return json;
}

/// Reads a member that may be absent: then the value stays.
template <typename T>
Result<void> read_if_there(JsonObject& object, const std::string& key, T& value) {
  if (!object.has(key)) return {};
  const auto read = [&] {
    if constexpr (std::is_same_v<T, bool>) return object.boolean(key);
    if constexpr (std::is_same_v<T, double>) return object.number(key);
    if constexpr (std::is_same_v<T, std::int64_t>) return object.integer(key);
  };
  MOTLEY_ASSIGN(value, read());
  return {};
}

/// What a text says; none: it is no text, or says nothing.
template <typename Parse>
auto parse_text(const Json& json, const Parse& parse) {
  const auto* text = json.get_ptr<const std::string*>();
  return text == nullptr ? std::nullopt : parse(*text);
}

Result<const Json*> read_list(JsonObject& object, const std::string& key) {
  MOTLEY_ASSIGN(const Json* list, object.member(key));
  if (list->is_array()) return list;
  return usage_error("plan.parse", fmt::format("{}: key '{}': wanted a list", object.where(), key));
}

Result<DeviceId> read_device(const Json& json, const std::string& where,
                             const cluster::Cluster& cluster) {
  if (!json.is_string()) {
    return usage_error("plan.parse", fmt::format("{}: key 'devices': wanted device names", where));
  }
  auto device = cluster::find_device(cluster, json.get_ref<const std::string&>());
  if (device) return *device;
  // The file has no fault: the cluster has changed since, so exit 4 and not 2.
  return stale_error("plan.unknown-device", fmt::format("{}: {}; plan again for this cluster",
                                                        where, device.error().message));
}

tl::unexpected<Error> bad_value(const std::string& where, const Json& found,
                                std::string_view wanted) {
  return usage_error(
      "plan.parse",
      fmt::format("{}: found {}, wanted {}", where,
                  found.dump(-1, ' ', false, Json::error_handler_t::replace), wanted));
}

Result<std::vector<OperatorSplit>> read_operators(JsonObject& object) {
  MOTLEY_ASSIGN(const Json* list, read_list(object, "operators"));
  std::vector<OperatorSplit> operators;
  operators.reserve(list->size());
  for (const Json& text : *list) {
    auto split = parse_text(text, parse_split);
    if (!split)
      return bad_value(fmt::format("{}: operator {}", object.where(), operators.size()), text,
                       "'whole', 'factor 1', 'factor 1: 3*_*64' or 'terms 0 2'");
    operators.push_back(std::move(*split));
  }
  return operators;
}

Result<std::vector<KeptParameter>> read_parameters(JsonObject& object) {
  MOTLEY_ASSIGN(const Json* json, object.member("parameters"));
  if (!json->is_object())
    return usage_error("plan.parse",
                       fmt::format("{}: key 'parameters': wanted an object", object.where()));
  std::vector<KeptParameter> parameters;
  for (const auto& [name, text] : json->items()) {
    const auto form = parse_text(text, graph::parse_form);
    if (!form || form->kind != graph::FormKind::kSharded)
      return bad_value(fmt::format("{}: parameter '{}'", object.where(), name), text,
                       "'S(0: 12)' or 'S(0: 3*12*64)'");
    parameters.push_back({name, *form});
  }
  return parameters;
}

Result<void> read_gathered_again(JsonObject& object, std::vector<KeptParameter>& parameters) {
  if (!object.has("gather_again")) return {};
  MOTLEY_ASSIGN(const Json* list, read_list(object, "gather_again"));
  for (const Json& name : *list) {
    const auto kept = std::find_if(parameters.begin(), parameters.end(), [&](const auto& each) {
      return name.is_string() && each.name == name.template get_ref<const std::string&>();
    });
    if (kept == parameters.end() || std::exchange(kept->is_gathered_again, true))
      return bad_value(fmt::format("{}: key 'gather_again'", object.where()), name,
                       "names of 'parameters', each once");
  }
  return {};
}

Result<std::vector<ExchangeWay>> read_exchanges(JsonObject& object) {
  std::vector<ExchangeWay> ways;
  if (!object.has("exchanges")) return ways;
  MOTLEY_ASSIGN(const Json* list, read_list(object, "exchanges"));
  for (const Json& json : *list) {
    const std::string where = fmt::format("{}: exchange {}", object.where(), ways.size());
    MOTLEY_ASSIGN(auto about, JsonObject::make(json, where));
    ExchangeWay& way = ways.emplace_back();
    MOTLEY_ASSIGN(way.op, about.string("operator"));
    MOTLEY_ASSIGN(way.bytes.value, about.integer("bytes"));
    MOTLEY_ASSIGN(way.largest, about.integer("largest"));
    MOTLEY_ASSIGN(const Json* name, about.member("method"));
    const auto method = parse_text(*name, find_exchange_method);
    if (!method) return bad_value(where, *name, "'native', 'padded', 'grouped' or 'hierarchical'");
    way.method = *method;
    MOTLEY_RETURN_IF_ERROR(about.refuse_unknown());
  }
  return ways;
}

/// Parses "12-40", which includes both ends.
std::optional<OpRange> parse_range(std::string_view text) {
  const std::size_t dash = text.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const auto first = find_integer(text.substr(0, dash));
  const auto last = find_integer(text.substr(dash + 1));
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  if (!first || !last || *first < 0 || *last < *first || *last > kMost) return std::nullopt;
  return OpRange{*first, *last + 1};
}

Result<std::vector<OpRange>> read_ranges(JsonObject& object, const std::string& key) {
  std::vector<OpRange> ranges;
  if (!object.has(key)) return ranges;
  MOTLEY_ASSIGN(const Json* list, read_list(object, key));
  for (const Json& text : *list) {
    const auto range = parse_text(text, parse_range);
    if (!range)
      return bad_value(fmt::format("{}: key '{}'", object.where(), key), text,
                       "operators such as '12-40'");
    ranges.push_back(*range);
  }
  return ranges;
}

Result<Region> region_from_json(const Json& json, const std::string& where,
                                const cluster::Cluster& cluster) {
  MOTLEY_ASSIGN(auto object, JsonObject::make(json, where));
  Region region;
  MOTLEY_ASSIGN(const Json* devices, read_list(object, "devices"));
  for (const Json& name : *devices) {
    MOTLEY_ASSIGN(const DeviceId device, read_device(name, where, cluster));
    region.devices.push_back(device);
  }
  MOTLEY_ASSIGN(const Json* shares, read_list(object, "shares"));
  for (const Json& share : *shares) {
    if (!share.is_number()) {
      return usage_error("plan.parse", fmt::format("{}: key 'shares': wanted numbers", where));
    }
    region.shares.push_back(share.get<double>());
  }
  MOTLEY_ASSIGN(region.covers, read_ranges(object, "covers"));
  MOTLEY_ASSIGN(region.recomputes, read_ranges(object, "recompute"));
  MOTLEY_RETURN_IF_ERROR(read_if_there(object, "ahead", region.ahead));
  MOTLEY_RETURN_IF_ERROR(read_if_there(object, "speed", region.speed));
  MOTLEY_RETURN_IF_ERROR(read_if_there(object, "late_weights", region.late_weights));
  MOTLEY_RETURN_IF_ERROR(read_if_there(object, "turns", region.turns));
  MOTLEY_RETURN_IF_ERROR(read_if_there(object, "lag", region.lag));
  if (object.has("operators")) {
    MOTLEY_ASSIGN(region.operators, read_operators(object));
    MOTLEY_ASSIGN(region.parameters, read_parameters(object));
    MOTLEY_RETURN_IF_ERROR(read_gathered_again(object, region.parameters));
    MOTLEY_ASSIGN(region.exchanges, read_exchanges(object));
  }
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  return region;
}

Result<Replica> replica_from_json(const Json& json, const std::string& where,
                                  const cluster::Cluster& cluster) {
  MOTLEY_ASSIGN(auto object, JsonObject::make(json, where));
  Replica replica;
  MOTLEY_ASSIGN(replica.samples, object.integer("samples"));
  MOTLEY_RETURN_IF_ERROR(read_if_there(object, "micro_batches", replica.micro_batches));
  MOTLEY_RETURN_IF_ERROR(read_if_there(object, "turns", replica.turns));
  MOTLEY_ASSIGN(const Json* regions, read_list(object, "regions"));
  for (std::size_t i = 0; i < regions->size(); ++i) {
    MOTLEY_ASSIGN(Region region,
                  region_from_json((*regions)[i], fmt::format("{}: region {}", where, i), cluster));
    replica.regions.push_back(std::move(region));
  }
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  return replica;
}

/// One of two words.
template <typename Word>
Result<Word> read_word(JsonObject& object, const std::string& key,
                       std::string_view (*name_of)(Word), const std::array<Word, 2>& words) {
  MOTLEY_ASSIGN(const std::string found, object.string(key));
  for (const Word each : words)
    if (name_of(each) == found) return each;
  return usage_error("plan.parse",
                     fmt::format("{}: key '{}': found '{}', wanted '{}' or '{}'", object.where(),
                                 key, found, name_of(words[0]), name_of(words[1])));
}

Result<std::map<DeviceId, double>> read_device_shares(JsonObject& object, const std::string& key,
                                                      const cluster::Cluster& cluster) {
  std::map<DeviceId, double> shares;
  MOTLEY_ASSIGN(const Json* json, object.member(key));
  if (!json->is_object() || json->empty())
    return bad_value(fmt::format("{}: key '{}'", object.where(), key), *json,
                     "devices with numbers");
  for (const auto& [name, share] : json->items()) {
    MOTLEY_ASSIGN(const DeviceId device, read_device(Json(name), object.where(), cluster));
    if (!share.is_number())
      return bad_value(fmt::format("{}: key '{}': device {}", object.where(), key, name), share,
                       "a number");
    shares[device] = share.get<double>();
  }
  return shares;
}

/// Reads the owners; those of older files, `state_shares`, are owners of all parameters.
Result<std::vector<Owners>> read_owners(JsonObject& object, const cluster::Cluster& cluster) {
  std::vector<Owners> owners;
  if (object.has("state_shares")) {
    MOTLEY_ASSIGN(auto shares, read_device_shares(object, "state_shares", cluster));
    owners.push_back({{"*"}, std::move(shares)});
  }
  if (!object.has("owners")) return owners;
  MOTLEY_ASSIGN(const Json* list, read_list(object, "owners"));
  for (std::size_t i = 0; i < list->size(); ++i) {
    MOTLEY_ASSIGN(auto entry,
                  JsonObject::make((*list)[i], fmt::format("{}: owners {}", object.where(), i)));
    Owners& made = owners.emplace_back();
    MOTLEY_ASSIGN(const Json* patterns, read_list(entry, "parameters"));
    for (const Json& pattern : *patterns) {
      if (!pattern.is_string())
        return bad_value(entry.where() + ": key 'parameters'", pattern, "a pattern of names");
      made.parameters.push_back(pattern.get<std::string>());
    }
    MOTLEY_ASSIGN(made.shares, read_device_shares(entry, "shares", cluster));
    MOTLEY_RETURN_IF_ERROR(entry.refuse_unknown());
  }
  return owners;
}

Result<void> read_schema(JsonObject& object) {
  MOTLEY_ASSIGN(const std::string schema, object.string("schema"));
  if (schema == kSchema) return {};
  return usage_error("plan.schema", fmt::format("{}: key 'schema': found '{}', wanted '{}'",
                                                object.where(), schema, kSchema));
}

}  // namespace

std::string print_plan(const Plan& plan, const cluster::Cluster& cluster) {
  Json json = Json::object();
  json["schema"] = kSchema;
  json["model_hash"] = plan.model_hash;
  json["cluster_hash"] = plan.cluster_hash;
  json["global_batch"] = plan.global_batch;
  json["replicas"] = Json::array();
  for (const Replica& replica : plan.replicas) {
    json["replicas"].push_back(replica_to_json(replica, cluster));
  }
  json["optimizer"] = optimizer_to_json(plan.recipe.optimizer);
  if (Json recipe = recipe_to_json(plan.recipe); !recipe.empty())
    json["recipe"] = std::move(recipe);
  json["batch_norm"] = batch_norm_name(plan.batch_norm);
  if (plan.batch_norm_span != BatchNormSpan::kStep)
    json["batch_norm_span"] = batch_norm_span_name(plan.batch_norm_span);
  json["bucket_bytes"] = plan.bucket_bytes.value;
  if (plan.updates != Updates::kNative) json["updates"] = updates_name(plan.updates);
  for (const Owners& owners : plan.owners) {
    Json entry = {{"parameters", owners.parameters}, {"shares", Json::object()}};
    for (const auto& [device, share] : owners.shares)
      entry["shares"][cluster.device(device).name] = share;
    json["owners"].push_back(std::move(entry));
  }
  if (plan.carried.exchanges != 0) json["carried"] = plan.carried.exchanges;
  if (plan.carried.skipped != 0) json["carried_skip"] = plan.carried.skipped;
  if (plan.tf32) json["tf32"] = true;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Plan> parse_plan(std::string_view text, const std::string& name,
                        const cluster::Cluster& cluster) {
  MOTLEY_ASSIGN(const Json json, parse_json(text, name));
  MOTLEY_ASSIGN(auto object, JsonObject::make(json, name));
  MOTLEY_RETURN_IF_ERROR(read_schema(object));
  Plan plan;
  MOTLEY_ASSIGN(plan.model_hash, object.string("model_hash"));
  MOTLEY_ASSIGN(plan.cluster_hash, object.string("cluster_hash"));
  MOTLEY_ASSIGN(plan.global_batch, object.integer("global_batch"));
  MOTLEY_ASSIGN(const Json* replicas, read_list(object, "replicas"));
  for (std::size_t i = 0; i < replicas->size(); ++i) {
    MOTLEY_ASSIGN(
        Replica replica,
        replica_from_json((*replicas)[i], fmt::format("{}: replica {}", name, i), cluster));
    plan.replicas.push_back(std::move(replica));
  }
  if (object.has("recipe")) {
    MOTLEY_ASSIGN(const Json* recipe, object.member("recipe"));
    MOTLEY_ASSIGN(plan.recipe, recipe_from_json(*recipe, name + ": recipe"));
  }
  MOTLEY_ASSIGN(const Json* optimizer, object.member("optimizer"));
  MOTLEY_ASSIGN(plan.recipe.optimizer, optimizer_from_json(*optimizer, name + ": optimizer"));
  MOTLEY_ASSIGN(plan.batch_norm, read_word(object, "batch_norm", batch_norm_name,
                                           {BatchNormMode::kGlobal, BatchNormMode::kLocal}));
  if (object.has("batch_norm_span")) {
    MOTLEY_ASSIGN(plan.batch_norm_span,
                  read_word(object, "batch_norm_span", batch_norm_span_name,
                            {BatchNormSpan::kStep, BatchNormSpan::kMicroBatch}));
  }
  MOTLEY_ASSIGN(plan.bucket_bytes.value, object.integer("bucket_bytes"));
  if (object.has("updates")) {
    MOTLEY_ASSIGN(plan.updates, read_word(object, "updates", updates_name,
                                          {Updates::kNative, Updates::kPortable}));
  }
  MOTLEY_ASSIGN(plan.owners, read_owners(object, cluster));
  MOTLEY_RETURN_IF_ERROR(read_if_there(object, "carried", plan.carried.exchanges));
  MOTLEY_RETURN_IF_ERROR(read_if_there(object, "carried_skip", plan.carried.skipped));
  MOTLEY_RETURN_IF_ERROR(read_if_there(object, "tf32", plan.tf32));
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  return plan;
}

}  // namespace motley::plan
