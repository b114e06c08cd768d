#include "motley/cost/layers/metis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "motley/base/json.h"
#include "motley/base/text.h"

namespace motley::cost {
namespace {

constexpr double kForwardShare = 1.0 / 3;
constexpr double kMegabyte = 1024 * 1024;
constexpr double kMost = 1e12;  // bytes, megabytes, milliseconds: results fit 64 bits

tl::unexpected<Error> fault(const std::string& name, const std::string& message) {
  return usage_error("import.metis", name + ": " + message);
}

struct Measurement {
  std::string kind;
  int degree = 0;
  std::int64_t batch = 0;
  std::string model;
  std::vector<double> parameters, outputs, compute_ms, memory_mb;  // by layer; outputs may be empty
  double optimizer_ms = 0;
};

/// Parses "DeviceType.KIND_tpN_bsN.json" after the last slash.
Result<Measurement> from_name(const std::string& name) {
  const std::string_view wanted = "DeviceType.";
  std::string_view rest = std::string_view(name).substr(name.rfind('/') + 1);
  const std::size_t tp = rest.rfind("_tp"), bs = rest.rfind("_bs");
  const auto bad = [&] { return fault(name, "wanted a name like DeviceType.A100_tp2_bs4.json"); };
  if (!rest.starts_with(wanted) || !rest.ends_with(".json") || tp == rest.npos || bs == rest.npos ||
      tp <= wanted.size() || bs < tp + 3)
    return bad();
  const auto degree = find_integer(rest.substr(tp + 3, bs - tp - 3));
  const auto batch = find_integer(rest.substr(bs + 3, rest.size() - 5 - bs - 3));
  if (!degree || !batch || *degree < 1 || *batch < 1 || *degree > 1'000'000 || *batch > 1'000'000)
    return bad();
  Measurement measured;
  measured.kind = rest.substr(wanted.size(), tp - wanted.size());
  measured.degree = static_cast<int>(*degree);
  measured.batch = *batch;
  return measured;
}

Result<JsonObject> section(JsonObject& parent, const std::string& key, const std::string& name) {
  MOTLEY_ASSIGN(const Json* json, parent.member(key));
  return JsonObject::make(*json, fmt::format("{}: key {}", name, key));
}

/// Reads an array of `size` numbers, each from 0 to kMost.
Result<std::vector<double>> numbers(JsonObject& object, const std::string& key, std::size_t size) {
  MOTLEY_ASSIGN(const Json* json, object.member(key));
  const auto bad = [&](const std::string& what) {
    return fault(object.where(), fmt::format("key '{}': {}", key, what));
  };
  if (!json->is_array() || json->size() != size)
    return bad(fmt::format("{} values, wanted num_layers = {}", json->size(), size));
  std::vector<double> values;
  for (const Json& value : *json) {
    if (!value.is_number() || value.get<double>() < 0 || value.get<double>() > kMost)
      return bad(fmt::format("layer {}: found {}, wanted a number of 0 to 10^12", values.size(),
                             value.dump().substr(0, 40)));
    values.push_back(value.get<double>());
  }
  return values;
}

Result<Measurement> parse_file(const MetisFile& file) {
  MOTLEY_ASSIGN(Measurement measured, from_name(file.name));
  MOTLEY_ASSIGN(const Json json, parse_json(file.text, file.name));
  MOTLEY_ASSIGN(JsonObject root, JsonObject::make(json, file.name));
  MOTLEY_ASSIGN(JsonObject model, section(root, "model", file.name));
  MOTLEY_ASSIGN(measured.model, model.string("model_name"));
  MOTLEY_ASSIGN(const std::int64_t layers, model.integer("num_layers"));
  if (layers < 1)
    return fault(file.name, fmt::format("num_layers is {}, wanted 1 or more", layers));
  const auto size = static_cast<std::size_t>(layers);
  MOTLEY_ASSIGN(JsonObject parameters, section(model, "parameters", file.name));
  MOTLEY_ASSIGN(measured.parameters, numbers(parameters, "parameters_per_layer_bytes", size));
  if (parameters.has("activation_parameters_bytes")) {
    MOTLEY_ASSIGN(measured.outputs, numbers(parameters, "activation_parameters_bytes", size));
  }
  MOTLEY_ASSIGN(JsonObject time, section(root, "execution_time", file.name));
  MOTLEY_ASSIGN(measured.compute_ms, numbers(time, "layer_compute_total_ms", size));
  MOTLEY_ASSIGN(measured.optimizer_ms, time.number("optimizer_time_ms"));
  MOTLEY_ASSIGN(JsonObject memory, section(root, "execution_memory", file.name));
  MOTLEY_ASSIGN(measured.memory_mb, numbers(memory, "layer_memory_total_mb", size));
  return measured;
}

std::vector<LayerTime> times_of(const Measurement& measured) {
  double all = 0;
  for (const double bytes : measured.parameters) all += bytes;
  std::vector<LayerTime> times;
  for (std::size_t i = 0; i < measured.compute_ms.size(); ++i) {
    const double pass = measured.compute_ms[i] * 1e-3;
    const double share = all > 0 ? measured.parameters[i] / all : 0;
    times.push_back({Seconds(kForwardShare * pass), Seconds((1 - kForwardShare) * pass),
                     Seconds(share * measured.optimizer_ms * 1e-3)});
  }
  return times;
}

/// Returns a layer's state and kept activations from its memory at one or two micro-batches.
LayerSize size_of(const Measurement& small, const Measurement& large, std::size_t layer) {
  const double parameters = small.parameters[layer];
  const double memory = small.memory_mb[layer] * kMegabyte;
  const auto batch = static_cast<double>(small.batch);
  double states = std::min(4 * parameters, memory);
  if (large.batch > small.batch) {
    const double growth = large.memory_mb[layer] * kMegabyte - memory;
    const double kept = growth / static_cast<double>(large.batch - small.batch);
    states = std::clamp(memory - kept * batch, std::min(parameters, memory), memory);
  }
  LayerSize size;
  size.weights = std::llround(parameters / 4);
  size.gradients = Bytes(std::llround(parameters));
  size.states = Bytes(std::llround(states));
  size.kept = Bytes(std::llround((memory - states) / batch));
  if (!small.outputs.empty()) size.output = Bytes(std::llround(small.outputs[layer] / batch));
  return size;
}

/// Smallest and largest micro-batch of a degree, on its first kind by name.
struct Extremes {
  const Measurement *small = nullptr, *large = nullptr;
};

std::map<int, Extremes> extremes_by_degree(const std::vector<Measurement>& all) {
  std::map<int, Extremes> found;
  for (const Measurement& measured : all) {
    auto& [small, large] = found[measured.degree];
    if (small == nullptr || measured.kind < small->kind) small = large = &measured;
    if (measured.kind != small->kind) continue;
    if (measured.batch < small->batch) small = &measured;
    if (measured.batch > large->batch) large = &measured;
  }
  return found;
}

Result<void> add(const Measurement& measured, const std::string& name, LayerProfile& profile,
                 std::size_t layers) {
  if (measured.model != profile.model || measured.parameters.size() != layers)
    return fault(name,
                 fmt::format("model '{}' of {} layers, wanted '{}' of {} as in the other "
                             "files",
                             measured.model, measured.parameters.size(), profile.model, layers));
  auto& table = profile.times[measured.kind][measured.degree];
  if (!table.emplace(measured.batch, times_of(measured)).second)
    return fault(name, fmt::format("a second file of {}, tp {}, micro-batch {}", measured.kind,
                                   measured.degree, measured.batch));
  return {};
}

}  // namespace

Result<LayerProfile> parse_metis_profile(const std::vector<MetisFile>& files) {
  LayerProfile profile;
  std::vector<Measurement> all;
  for (const MetisFile& file : files) {
    MOTLEY_ASSIGN(Measurement measured, parse_file(file));
    if (all.empty()) profile.model = measured.model;
    all.push_back(std::move(measured));
    MOTLEY_RETURN_IF_ERROR(add(all.back(), file.name, profile, all[0].parameters.size()));
  }
  for (const auto& [degree, extremes] : extremes_by_degree(all))
    for (std::size_t i = 0; i < all[0].parameters.size(); ++i)
      profile.sizes[degree].push_back(size_of(*extremes.small, *extremes.large, i));
  return profile;
}

}  // namespace motley::cost
