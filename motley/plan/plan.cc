#include "motley/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "motley/base/check.h"
#include "motley/base/json.h"
#include "motley/base/text.h"
#include "motley/plan/shares.h"

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
    auto split = text.is_string() ? parse_split(text.get_ref<const std::string&>()) : std::nullopt;
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
    const auto form =
        text.is_string() ? graph::parse_form(text.get_ref<const std::string&>()) : std::nullopt;
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
    const auto method = name->is_string()
                            ? find_exchange_method(name->get_ref<const std::string&>())
                            : std::nullopt;
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
    const auto range =
        text.is_string() ? parse_range(text.get_ref<const std::string&>()) : std::nullopt;
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
  if (object.has("ahead")) {
    MOTLEY_ASSIGN(region.ahead, object.integer("ahead"));
  }
  if (object.has("speed")) {
    MOTLEY_ASSIGN(region.speed, object.number("speed"));
  }
  if (object.has("late_weights")) {
    MOTLEY_ASSIGN(region.late_weights, object.boolean("late_weights"));
  }
  if (object.has("turns")) {
    MOTLEY_ASSIGN(region.turns, object.integer("turns"));
  }
  if (object.has("lag")) {
    MOTLEY_ASSIGN(region.lag, object.number("lag"));
  }
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
  if (object.has("micro_batches")) {
    MOTLEY_ASSIGN(replica.micro_batches, object.integer("micro_batches"));
  }
  if (object.has("turns")) {
    MOTLEY_ASSIGN(replica.turns, object.integer("turns"));
  }
  MOTLEY_ASSIGN(const Json* regions, read_list(object, "regions"));
  for (std::size_t i = 0; i < regions->size(); ++i) {
    MOTLEY_ASSIGN(Region region,
                  region_from_json((*regions)[i], fmt::format("{}: region {}", where, i), cluster));
    replica.regions.push_back(std::move(region));
  }
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  return replica;
}

Result<BatchNormMode> read_batch_norm(JsonObject& object) {
  MOTLEY_ASSIGN(const std::string word, object.string("batch_norm"));
  for (const BatchNormMode mode : {BatchNormMode::kGlobal, BatchNormMode::kLocal}) {
    if (batch_norm_name(mode) == word) return mode;
  }
  return usage_error("plan.parse",
                     fmt::format("{}: key 'batch_norm': found '{}', wanted 'global' or 'local'",
                                 object.where(), word));
}

/// Returns kStep if the key is absent.
Result<BatchNormSpan> read_batch_norm_span(JsonObject& object) {
  if (!object.has("batch_norm_span")) return BatchNormSpan::kStep;
  MOTLEY_ASSIGN(const std::string word, object.string("batch_norm_span"));
  for (const BatchNormSpan span : {BatchNormSpan::kStep, BatchNormSpan::kMicroBatch})
    if (batch_norm_span_name(span) == word) return span;
  return usage_error("plan.parse",
                     fmt::format("{}: key 'batch_norm_span': found '{}', wanted 'step' or "
                                 "'micro_batch'",
                                 object.where(), word));
}

/// Returns kNative if the key is absent.
Result<Updates> read_updates(JsonObject& object) {
  if (!object.has("updates")) return Updates::kNative;
  MOTLEY_ASSIGN(const std::string word, object.string("updates"));
  const auto found = parse_updates(word);
  if (found) return found;
  return usage_error("plan.parse",
                     fmt::format("{}: key 'updates': {}", object.where(), found.error().message));
}

Result<std::map<DeviceId, double>> read_state_shares(JsonObject& object,
                                                     const cluster::Cluster& cluster) {
  std::map<DeviceId, double> shares;
  if (!object.has("state_shares")) return shares;
  MOTLEY_ASSIGN(const Json* json, object.member("state_shares"));
  if (!json->is_object() || json->empty())
    return bad_value(fmt::format("{}: key 'state_shares'", object.where()), *json,
                     "devices with numbers");
  for (const auto& [name, share] : json->items()) {
    MOTLEY_ASSIGN(const DeviceId device, read_device(Json(name), object.where(), cluster));
    if (!share.is_number())
      return bad_value(fmt::format("{}: key 'state_shares': device {}", object.where(), name),
                       share, "a number");
    shares[device] = share.get<double>();
  }
  return shares;
}

Result<void> read_schema(JsonObject& object) {
  MOTLEY_ASSIGN(const std::string schema, object.string("schema"));
  if (schema == kSchema) return {};
  return usage_error("plan.schema", fmt::format("{}: key 'schema': found '{}', wanted '{}'",
                                                object.where(), schema, kSchema));
}

// Collects all faults of the replicas, one clause each: a plan edited by hand often has several.
class ReplicaCheck {
 public:
  explicit ReplicaCheck(const cluster::Cluster& cluster) : cluster_(cluster) {}

  void add(std::size_t index, const Replica& replica) {
    const std::string where = fmt::format("replica {}", index);
    if (replica.samples <= 0) {
      fault("{}: found {} samples, wanted at least 1", where, replica.samples);
    }
    if (replica.micro_batches < 1 ||
        replica.micro_batches > std::max<std::int64_t>(1, replica.samples)) {
      fault("{}: {} samples cannot be done in {} micro-batches", where, replica.samples,
            replica.micro_batches);
    }
    if (replica.turns < 1 || replica.turns > std::max<std::int64_t>(1, replica.micro_batches))
      fault("{}: {} of {} micro-batches cannot take turns", where, replica.turns,
            replica.micro_batches);
    if (replica.turns > 1) takes_turns = true;
    if (replica.regions.empty()) fault("{}: found no region, wanted at least 1", where);
    for (std::size_t r = 0; r < replica.regions.size(); ++r) {
      const Region& region = replica.regions[r];
      const std::string place =
          replica.regions.size() == 1 ? where : fmt::format("{}: region {}", where, r);
      if (region.devices.empty()) fault("{}: found no device, wanted at least 1", place);
      if (region.devices.size() == 1) add_one_device(place, region);
      if (region.devices.size() > 1) add_shared(place, region);
      if (region.ahead < 0) fault("{}: ahead is {}, wanted 0 or more", place, region.ahead);
      if (!(region.speed > 0) || !std::isfinite(region.speed))
        fault("{}: speed is {}, wanted more than 0", place, region.speed);
      if (!(region.lag >= 0) || !std::isfinite(region.lag))
        fault("{}: lag is {}, wanted 0 or more", place, region.lag);
      add_turns(place, region);
      add_recomputes(place, region);
      std::set<DeviceId> own;
      for (const DeviceId device : region.devices) {
        if (!own.insert(device).second && is_known(device))
          fault("device {} is twice in {}", cluster_.device(device).name, place);
        else
          add_use(index, device);
      }
    }
    if (replica.regions.size() > 1) add_covers(where, replica);
  }

  bool has_shared_region = false, takes_turns = false;
  std::string turning;  ///< the first region with interleaved tasks

  std::vector<std::string> faults;

 private:
  template <typename... Args>
  void fault(fmt::format_string<Args...> format, Args&&... args) {
    faults.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  void add_order(const std::string& where, const std::vector<OpRange>& ranges) {
    for (std::size_t i = 1; i < ranges.size(); ++i)
      if (ranges[i].first < ranges[i - 1].end)
        fault("{}: operators {} are not behind those before", where, ranges[i].first);
  }

  /// Checks that a region recomputes only its own operators.
  void add_recomputes(const std::string& where, const Region& region) {
    add_order(where + ": recompute", region.recomputes);
    for (const OpRange& range : region.recomputes) {
      const bool is_own =
          region.covers.empty() ||
          std::any_of(region.covers.begin(), region.covers.end(), [&](const OpRange& own) {
            return own.first <= range.first && range.end <= own.end;
          });
      if (!is_own)
        fault("{}: operators {}-{} are to be done again and not all are covered", where,
              range.first, range.end - 1);
    }
  }

  /// Checks `turns`: at most two tasks interleave, and only on devices that exchange something.
  void add_turns(const std::string& where, const Region& region) {
    if (region.turns == 1) return;
    if (region.turns != 2) fault("{}: turns is {}, wanted 1 or 2", where, region.turns);
    if (region.devices.size() == 1) fault("{}: one device takes no turns", where);
    if (turning.empty()) turning = where;
  }

  /// Checks that every region lists its operators and that none is in two.
  void add_covers(const std::string& where, const Replica& replica) {
    std::vector<OpRange> ranges;
    for (std::size_t r = 0; r < replica.regions.size(); ++r) {
      const std::vector<OpRange>& covers = replica.regions[r].covers;
      if (covers.empty()) fault("{}: region {} does not say which operators it covers", where, r);
      add_order(fmt::format("{}: region {}", where, r), covers);
      ranges.insert(ranges.end(), covers.begin(), covers.end());
    }
    std::sort(ranges.begin(), ranges.end(),
              [](const OpRange& a, const OpRange& b) { return a.first < b.first; });
    for (std::size_t i = 1; i < ranges.size(); ++i)
      if (ranges[i].first < ranges[i - 1].end)
        fault("{}: operator {} is in two regions", where, ranges[i].first);
  }

  void add_one_device(const std::string& where, const Region& region) {
    if (region.shares != std::vector<double>{1.0}) {
      fault("{}: the share of its only device must be 1", where);
    }
    if (!region.operators.empty() || !region.parameters.empty()) {
      fault("{}: one device splits no operators", where);
    }
  }

  void add_shared(const std::string& where, const Region& region) {
    has_shared_region = true;
    if (region.operators.empty()) {
      fault("{}: found {} devices, but not how they split the operators", where,
            region.devices.size());
    }
    if (region.shares.size() != region.devices.size()) {
      fault("{}: found {} shares for {} devices", where, region.shares.size(),
            region.devices.size());
      return;
    }
    // `!(share >= 0)` also refuses NaN.
    double total = 0;
    for (const double share : region.shares) {
      if (!(share >= 0)) fault("{}: found a share of {}, wanted 0 or more", where, share);
      total += share;
    }
    if (!(total > 0) || !std::isfinite(total)) {
      fault("{}: the shares sum to {}, wanted a number above 0", where, total);
    }
  }

  bool is_known(DeviceId device) const {
    return !device.is_none() && device.index() < cluster_.devices.size();
  }

  void add_use(std::size_t index, DeviceId device) {
    if (!is_known(device)) {
      fault("replica {}: the cluster has no device number {}", index, device.value);
      return;
    }
    const auto [first, added] = user_.emplace(device, index);
    if (!added && first->second != index) {
      fault("device {} is used by replicas {} and {}", cluster_.device(device).name, first->second,
            index);
    }
  }

  const cluster::Cluster& cluster_;
  std::map<DeviceId, std::size_t> user_;
};

bool is_shared(const Replica& replica) {
  return std::any_of(replica.regions.begin(), replica.regions.end(),
                     [](const Region& region) { return region.devices.size() > 1; });
}

}  // namespace

std::string_view batch_norm_name(BatchNormMode mode) {
  return mode == BatchNormMode::kGlobal ? "global" : "local";
}

Plan in_micro_batches(Plan plan, std::int64_t micro_batches) {
  const std::int64_t before = plan.replicas.front().micro_batches;
  plan.global_batch = plan.global_batch / before * micro_batches;
  for (Replica& replica : plan.replicas) {
    replica.samples = replica.samples / before * micro_batches;
    replica.micro_batches = micro_batches;
    replica.turns = std::min(replica.turns, micro_batches);
  }
  return plan;
}

std::string_view batch_norm_span_name(BatchNormSpan span) {
  return span == BatchNormSpan::kStep ? "step" : "micro_batch";
}

std::string_view updates_name(Updates updates) {
  return updates == Updates::kNative ? "native" : "portable";
}

Result<Updates> parse_updates(std::string_view name) {
  for (const Updates updates : {Updates::kNative, Updates::kPortable})
    if (updates_name(updates) == name) return updates;
  return usage_error("plan.updates",
                     fmt::format("found '{}', wanted 'native' or 'portable'", name));
}

bool splits_operators(const Plan& plan) {
  return std::any_of(plan.replicas.begin(), plan.replicas.end(), is_shared);
}

std::vector<Stretch> find_stretches(const Replica& replica, std::int64_t first) {
  const std::int64_t least = replica.samples / replica.micro_batches;
  const std::int64_t more = replica.samples % replica.micro_batches;
  std::vector<Stretch> stretches;
  for (std::int64_t m = 0; m < replica.micro_batches; ++m) {
    stretches.push_back({first, least + (m < more ? 1 : 0)});
    first += stretches.back().count;
  }
  return stretches;
}

bool has_stages(const Plan& plan) {
  if (!plan.state_shares.empty()) return true;
  const std::int64_t times = plan.replicas.front().micro_batches;
  return std::any_of(plan.replicas.begin(), plan.replicas.end(), [&](const Replica& replica) {
    return replica.regions.size() > 1 || replica.micro_batches != times ||
           replica.samples % times != 0 || (is_shared(replica) && plan.replicas.size() > 1) ||
           replica.regions.front().recomputes != plan.replicas.front().regions.front().recomputes;
  });
}

std::vector<Member> members(const Plan& plan) {
  std::vector<Member> ranks;
  if (has_stages(plan)) {
    std::set<DeviceId> seen;
    for (const Replica& replica : plan.replicas)
      for (const Region& region : replica.regions)
        for (const DeviceId device : region.devices)
          if (seen.insert(device).second) ranks.push_back({device, replica.samples});
    return ranks;
  }
  for (const Replica& replica : plan.replicas) {
    const Region& region = replica.regions.front();
    const std::int64_t times = replica.micro_batches;
    const std::vector<std::int64_t> samples = round_shares(region.shares, replica.samples / times);
    for (std::size_t i = 0; i < samples.size(); ++i)
      ranks.push_back({region.devices[i], times * samples[i]});
  }
  return ranks;
}

std::vector<Replica> make_replicas(const std::vector<DeviceId>& devices,
                                   const std::vector<std::int64_t>& samples) {
  MOTLEY_CHECK(devices.size() == samples.size());
  std::vector<Replica> replicas;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    // A device with no samples is idle: it takes no part in exchanges, so it is no replica.
    if (samples[i] > 0) replicas.push_back({samples[i], {Region{{devices[i]}, {1.0}}}});
  }
  return replicas;
}

std::int64_t shown_micro_batches(const Plan& plan) {
  const bool is_shown =
      plan.batch_norm_span == BatchNormSpan::kMicroBatch && !plan.replicas.empty();
  return is_shown ? plan.replicas.front().micro_batches : 1;
}

Plan split_instead(Plan plan, const std::vector<DeviceId>& devices,
                   const std::vector<std::int64_t>& samples) {
  const std::int64_t micro_batches = shown_micro_batches(plan);
  plan.replicas = make_replicas(devices, samples);
  for (Replica& replica : plan.replicas) replica.micro_batches = micro_batches;
  plan.state_shares.clear();
  return plan;
}

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
  for (const auto& [device, share] : plan.state_shares)
    json["state_shares"][cluster.device(device).name] = share;
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
  MOTLEY_ASSIGN(plan.batch_norm, read_batch_norm(object));
  MOTLEY_ASSIGN(plan.batch_norm_span, read_batch_norm_span(object));
  MOTLEY_ASSIGN(plan.bucket_bytes.value, object.integer("bucket_bytes"));
  MOTLEY_ASSIGN(plan.updates, read_updates(object));
  MOTLEY_ASSIGN(plan.state_shares, read_state_shares(object, cluster));
  if (object.has("tf32")) {
    MOTLEY_ASSIGN(plan.tf32, object.boolean("tf32"));
  }
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  return plan;
}

namespace {

/// Checks which interleaves: the replica of one shared region, or the regions of a plan of stages.
void add_turns(const Plan& plan, const ReplicaCheck& check, std::vector<std::string>& faults) {
  const bool is_one_region = plan.replicas.size() == 1 && is_shared(plan.replicas[0]);
  if (check.takes_turns && (!is_one_region || has_stages(plan)))
    faults.push_back(
        "micro-batches take turns: only those of one replica whose one region several devices "
        "share do, in equal parts");
  if (!check.turning.empty() && !has_stages(plan))
    faults.push_back(fmt::format(
        "{}: regions take turns in plans of stages; in this one the replica does", check.turning));
}

}  // namespace

Result<void> verify_plan(const Plan& plan, const std::string& model_hash,
                         const cluster::Cluster& cluster) {
  ReplicaCheck check(cluster);
  // Sums wrap like unsigned numbers: a file may hold any integers, which other clauses refuse.
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < plan.replicas.size(); ++i) {
    check.add(i, plan.replicas[i]);
    total += static_cast<std::uint64_t>(plan.replicas[i].samples);
  }
  std::vector<std::string> faults = std::move(check.faults);
  if (check.has_shared_region && plan.batch_norm == BatchNormMode::kLocal)
    faults.push_back("batch_norm is local: where operators are split it can only be global");
  add_turns(plan, check, faults);
  const auto samples = static_cast<std::int64_t>(total);
  if (plan.replicas.empty()) faults.push_back("no replicas, wanted at least 1");
  if (!plan.replicas.empty() && samples != plan.global_batch) {
    faults.push_back(fmt::format("the replicas have {} samples together, the global batch is {}",
                                 samples, plan.global_batch));
  }
  double states = 0;
  for (const auto& [device, share] : plan.state_shares) {
    if (!(share >= 0) || !std::isfinite(share))
      faults.push_back(fmt::format("state_shares: found a share of {}, wanted 0 or more", share));
    states += share;
    const bool is_used =
        std::any_of(plan.replicas.begin(), plan.replicas.end(), [&, of = device](const auto& each) {
          return std::any_of(each.regions.begin(), each.regions.end(), [&](const Region& region) {
            return std::find(region.devices.begin(), region.devices.end(), of) !=
                   region.devices.end();
          });
        });
    if (!is_used && !device.is_none() && device.index() < cluster.devices.size())
      faults.push_back(
          fmt::format("state_shares: device {} is in no replica", cluster.device(device).name));
  }
  if (!plan.state_shares.empty() && !(states > 0))
    faults.push_back("state_shares: none is above 0");
  if (plan.bucket_bytes.value <= 0) {
    faults.push_back(fmt::format("bucket_bytes is {}, wanted at least 1", plan.bucket_bytes.value));
  }
  const bool invalid = !faults.empty();
  if (plan.model_hash != model_hash) {
    faults.push_back(fmt::format("made for model {}, this model is {}; plan again", plan.model_hash,
                                 model_hash));
  }
  const std::string hash = cluster::cluster_hash(cluster);
  if (plan.cluster_hash != hash) {
    faults.push_back(fmt::format("made for cluster {}, this cluster is {}; plan again",
                                 plan.cluster_hash, hash));
  }
  if (faults.empty()) return {};
  std::string message = "plan: " + join(faults, "; ");
  if (invalid) return usage_error("plan.invalid", std::move(message));
  return stale_error("plan.stale", std::move(message));
}

}  // namespace motley::plan
