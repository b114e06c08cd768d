#include "motley/cost/layers/sailor.h"

#include <fmt/format.h>

#include <cmath>

#include "motley/base/json.h"
#include "motley/base/text.h"

namespace motley::cost {
namespace {

/// A JSON value with the keys that lead to it, for messages.
struct At {
  const Json* json;
  std::string name, path;

  At member(const std::string& key, const Json& value) const {
    return {&value, name, path.empty() ? key : path + "." + key};
  }
};

tl::unexpected<Error> fault(const At& at, const std::string& wanted) {
  return usage_error("import.sailor", fmt::format("{}: {}found {}, wanted {}", at.name,
                                                  at.path.empty() ? "" : "key " + at.path + ": ",
                                                  at.json->dump().substr(0, 40), wanted));
}

Result<At> find(const At& at, const std::string& key) {
  if (!at.json->is_object()) return fault(at, "an object");
  const auto found = at.json->find(key);
  if (found == at.json->end())
    return usage_error("import.sailor", fmt::format("{}: no key {}", at.name,
                                                    at.path.empty() ? key : at.path + "." + key));
  return at.member(key, *found);
}

Result<At> element(const At& at, std::size_t index) {
  if (!at.json->is_array() || index >= at.json->size())
    return fault(at, fmt::format("an array of more than {}", index));
  return at.member(std::to_string(index), (*at.json)[index]);
}

Result<double> number(const At& at) {
  if (!at.json->is_number()) return fault(at, "a number");
  return at.json->get<double>();
}

/// Reads bytes, elements or samples, small enough that results fit 64 bits.
Result<std::int64_t> integer(const At& at, std::int64_t least) {
  const double value = at.json->is_number_integer() ? at.json->get<double>() : -1;
  if (value < static_cast<double>(least) || value > 1e12)
    return fault(at, fmt::format("an integer of {} to 10^12", least));
  return at.json->get<std::int64_t>();
}

Result<std::int64_t> integer_of(const At& at, const std::string& key, std::int64_t least) {
  MOTLEY_ASSIGN(const At value, find(at, key));
  return integer(value, least);
}

/// Returns members by their positive numeric keys.
Result<std::map<std::int64_t, At>> numbered(const At& at, std::int64_t least) {
  if (!at.json->is_object()) return fault(at, "an object");
  std::map<std::int64_t, At> members;
  for (const auto& [key, value] : at.json->items()) {
    const auto n = find_integer(key);
    if (!n || *n < least || *n > 1'000'000)
      return fault(at, fmt::format("numbers of {} or more as keys, not '{}'", least, key));
    members.emplace(*n, at.member(key, value));
  }
  return members;
}

/// Returns members whose keys must be 0, 1, 2, ...
Result<std::vector<At>> layers_of(const At& at) {
  MOTLEY_ASSIGN(const auto members, numbered(at, 0));
  std::vector<At> layers;
  for (const auto& [index, member] : members) {
    if (index != static_cast<std::int64_t>(layers.size()))
      return usage_error("import.sailor",
                         fmt::format("{}: key {}: no layer {}", at.name, at.path, layers.size()));
    layers.push_back(member);
  }
  return layers;
}

Result<LayerTime> layer_time(const At& at) {
  if (!at.json->is_array() || at.json->size() != 3)
    return fault(at, "[forward, backward, update] in seconds");
  std::array<Seconds, 3> times;
  for (std::size_t i = 0; i < 3; ++i) {
    MOTLEY_ASSIGN(const At part, element(at, i));
    MOTLEY_ASSIGN(const double value, number(part));
    times[i] = Seconds(value);
  }
  return LayerTime{times[0], times[1], times[2]};
}

Result<LayerSize> layer_size(const At& at) {
  LayerSize size;
  MOTLEY_ASSIGN(size.weights, integer_of(at, "params_floats", 0));
  MOTLEY_ASSIGN(const std::int64_t bytes, integer_of(at, "params_bytes", 0));
  MOTLEY_ASSIGN(const std::int64_t output, integer_of(at, "act_output_bytes", 0));
  MOTLEY_ASSIGN(const std::int64_t kept, integer_of(at, "act_mem_bytes", 0));
  size.gradients = Bytes(bytes);
  size.states = Bytes(4 * bytes);
  size.kept = Bytes(kept);
  size.output = Bytes(output);
  return size;
}

Result<RateCurve> curve(const At& at) {
  MOTLEY_ASSIGN(const At fit, element(at, 0));
  MOTLEY_ASSIGN(const At peak, element(at, 1));
  RateCurve result;
  for (std::size_t i = 0; i < 3; ++i) {
    MOTLEY_ASSIGN(const At coefficient, element(fit, i));
    MOTLEY_ASSIGN(result.coefficients[i], number(coefficient));
  }
  MOTLEY_ASSIGN(const double rate, number(peak));
  if (!(rate > 0)) return fault(peak, "a rate above zero");
  result.peak = BytesPerSecond(rate);
  if (!(transfer_time(result, Bytes(1), 1).value > 0))
    return fault(fit, "a rate above zero for 1 MB");
  return result;
}

Result<std::map<std::string, RateCurves>> curves_by_kind(const At& at) {
  if (!at.json->is_object()) return fault(at, "an object");
  std::map<std::string, RateCurves> kinds;
  for (const auto& [kind, value] : at.json->items()) {
    MOTLEY_ASSIGN(const auto members, numbered(at.member(kind, value), 1));
    for (const auto& [devices, member] : members) {
      MOTLEY_ASSIGN(kinds[sailor_kind(kind)][static_cast<int>(devices)], curve(member));
    }
  }
  return kinds;
}

Result<StageGroup> stage_group(const At& at) {
  MOTLEY_ASSIGN(const At hosts, element(at, 0));
  MOTLEY_ASSIGN(const At degree, element(at, 1));
  MOTLEY_ASSIGN(const At host, element(hosts, 0));
  MOTLEY_ASSIGN(const At kind, element(host, 0));
  if (!kind.json->is_string()) return fault(kind, "a device kind");
  MOTLEY_ASSIGN(const std::int64_t tensor_parallel, integer(degree, 1));
  if (tensor_parallel > 1'000'000) return fault(degree, "a degree of at most 10^6");
  return StageGroup{sailor_kind(kind.json->get<std::string>()), static_cast<int>(tensor_parallel)};
}

Result<PipelineStage> pipeline_stage(const At& layers, const At& groups) {
  PipelineStage stage;
  MOTLEY_ASSIGN(const At first, element(layers, 0));
  MOTLEY_ASSIGN(const std::int64_t begin, integer(first, 0));
  for (std::size_t i = 0; i < layers.json->size(); ++i) {
    MOTLEY_ASSIGN(const At layer, element(layers, i));
    MOTLEY_ASSIGN(const std::int64_t index, integer(layer, 0));
    if (index != begin + static_cast<std::int64_t>(i))
      return fault(layer, fmt::format("layer {}", begin + static_cast<std::int64_t>(i)));
  }
  stage.first = static_cast<std::size_t>(begin);
  stage.end = stage.first + layers.json->size();
  if (!groups.json->is_array()) return fault(groups, "an array of replicas");
  for (std::size_t r = 0; r < groups.json->size(); ++r) {
    MOTLEY_ASSIGN(const At at, element(groups, r));
    MOTLEY_ASSIGN(StageGroup group, stage_group(at));
    stage.replicas.push_back(std::move(group));
  }
  return stage;
}

Result<void> add_stages(const At& pipeline, PipelinePlan& plan) {
  MOTLEY_ASSIGN(const At layers, find(pipeline, "layers_per_stage"));
  MOTLEY_ASSIGN(const At groups, find(pipeline, "tmp_per_stage"));
  if (!layers.json->is_array()) return fault(layers, "an array of stages");
  for (std::size_t s = 0; s < layers.json->size(); ++s) {
    MOTLEY_ASSIGN(const At stage_layers, element(layers, s));
    MOTLEY_ASSIGN(const At stage_groups, element(groups, s));
    MOTLEY_ASSIGN(PipelineStage stage, pipeline_stage(stage_layers, stage_groups));
    plan.stages.push_back(std::move(stage));
  }
  return {};
}

}  // namespace

std::string sailor_kind(std::string_view name) {
  // Its "RTX-2080" has 11 GB, as the Ti.
  static const std::map<std::string_view, std::string_view> kKinds = {
      {"A100-40", "a100-40g"},   {"A100-80", "a100-80g"}, {"GH-96", "gh200-96g"},
      {"RTX-2080", "rtx2080ti"}, {"RTX-3090", "rtx3090"}, {"Titan-RTX", "titanrtx"},
      {"V100-16", "v100-16g"}};
  const auto found = kKinds.find(name);
  return std::string(found == kKinds.end() ? name : found->second);
}

Result<void> add_sailor_times(std::string_view text, const std::string& name,
                              const std::string& kind, LayerProfile& profile) {
  MOTLEY_ASSIGN(const Json json, parse_json(text, name));
  MOTLEY_ASSIGN(const auto batches, numbered({&json, name, ""}, 1));
  for (const auto& [batch, by_degree] : batches) {
    MOTLEY_ASSIGN(const auto degrees, numbered(by_degree, 1));
    for (const auto& [degree, table] : degrees) {
      MOTLEY_ASSIGN(const std::vector<At> layers, layers_of(table));
      std::vector<LayerTime> times;
      for (const At& layer : layers) {
        MOTLEY_ASSIGN(const LayerTime time, layer_time(layer));
        times.push_back(time);
      }
      profile.times[sailor_kind(kind)][static_cast<int>(degree)][batch] = std::move(times);
    }
  }
  return {};
}

Result<void> add_sailor_sizes(std::string_view text, const std::string& name,
                              LayerProfile& profile) {
  MOTLEY_ASSIGN(const Json json, parse_json(text, name));
  MOTLEY_ASSIGN(const At model, find({&json, name, ""}, profile.model));
  MOTLEY_ASSIGN(const auto degrees, numbered(model, 1));
  for (const auto& [degree, table] : degrees) {
    MOTLEY_ASSIGN(const std::vector<At> layers, layers_of(table));
    std::vector<LayerSize> sizes;
    for (const At& layer : layers) {
      MOTLEY_ASSIGN(const LayerSize size, layer_size(layer));
      sizes.push_back(size);
    }
    profile.sizes[static_cast<int>(degree)] = std::move(sizes);
  }
  return {};
}

Result<StageNetwork> parse_sailor_network(std::string_view text, const std::string& name) {
  MOTLEY_ASSIGN(const Json json, parse_json(text, name));
  MOTLEY_ASSIGN(const At inter, find({&json, name, ""}, "inter"));
  MOTLEY_ASSIGN(const At intra, find({&json, name, ""}, "intra"));
  StageNetwork network;
  MOTLEY_ASSIGN(const auto between, curves_by_kind(inter));
  for (const auto& [kind, curves] : between) {
    network.between[{kind, kind}] = curves;
    network.devices_per_host[kind] = curves.empty() ? 1 : curves.rbegin()->first;
  }
  MOTLEY_ASSIGN(network.inside, curves_by_kind(intra));
  return network;
}

Result<void> add_sailor_pairs(std::string_view text, const std::string& name,
                              const std::string& zone, StageNetwork& network) {
  MOTLEY_ASSIGN(const Json json, parse_json(text, name));
  MOTLEY_ASSIGN(const At senders, find({&json, name, ""}, zone));
  for (const auto& [from, counts] : senders.json->items()) {
    MOTLEY_ASSIGN(const auto by_count, numbered(senders.member(from, counts), 1));
    for (const auto& [devices, zones] : by_count) {
      MOTLEY_ASSIGN(const At receivers, find(zones, zone));
      for (const auto& [to, value] : receivers.json->items()) {
        const At at = receivers.member(to, value);
        const auto known = network.between.find(std::pair(sailor_kind(from), sailor_kind(to)));
        if (from == to && known != network.between.end() &&
            known->second.contains(static_cast<int>(devices)))
          continue;
        if (!value.contains(std::to_string(devices))) continue;
        MOTLEY_ASSIGN(const At fit, find(at, std::to_string(devices)));
        MOTLEY_ASSIGN(network.between[std::pair(sailor_kind(from), sailor_kind(to))]
                                     [static_cast<int>(devices)],
                      curve(fit));
      }
    }
  }
  return {};
}

Result<SailorPlan> parse_sailor_plan(std::string_view text, const std::string& name) {
  MOTLEY_ASSIGN(const Json json, parse_json(text, name));
  const At root{&json, name, ""};
  MOTLEY_ASSIGN(const At pipelines, find(root, "pipeline_list"));
  if (!pipelines.json->is_array() || pipelines.json->size() != 1)
    return fault(pipelines, "one pipeline");
  MOTLEY_ASSIGN(const At pipeline, element(pipelines, 0));
  SailorPlan result;
  MOTLEY_RETURN_IF_ERROR(add_stages(pipeline, result.plan));
  MOTLEY_ASSIGN(result.plan.micro_batch, integer_of(root, "mbs", 1));
  MOTLEY_ASSIGN(const std::int64_t samples, integer_of(root, "gbs", 1));
  if (result.plan.stages.empty() || result.plan.stages[0].replicas.empty())
    return fault(pipeline, "a stage with a replica");
  const std::int64_t each =
      result.plan.micro_batch * static_cast<std::int64_t>(result.plan.stages[0].replicas.size());
  result.plan.micro_batches = (samples + each - 1) / each;
  if (json.contains("real")) {
    MOTLEY_ASSIGN(const At real, find(root, "real"));
    MOTLEY_ASSIGN(const double seconds, number(real));
    result.step = Seconds(seconds);
  }
  if (json.contains("max_mem")) {
    MOTLEY_ASSIGN(const std::int64_t bytes, integer_of(root, "max_mem", 1));
    result.peak = Bytes(bytes);
  }
  return result;
}

}  // namespace motley::cost
