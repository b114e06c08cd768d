#include "motley/control/planning/layer_files.h"

#include <fmt/format.h>

#include <utility>

#include "motley/base/file.h"
#include "motley/cost/layers/metis.h"
#include "motley/cost/layers/sailor.h"

namespace motley::control {
namespace {

Result<std::pair<std::string, std::string>> parse_times(const std::string& text) {
  const std::size_t at = text.find('=');
  if (at == std::string::npos || at == 0 || at + 1 == text.size())
    return usage_error("cli.layers", fmt::format("--layer-times: found '{}', wanted KIND=FILE, for "
                                                 "example A100-40=profile.json",
                                                 text));
  return std::pair(text.substr(0, at), text.substr(at + 1));
}

Result<cost::LayerProfile> read_sailor(const LayerFiles& files) {
  cost::LayerProfile profile;
  profile.model = files.model;
  for (const std::string& each : files.times) {
    MOTLEY_ASSIGN(const auto named, parse_times(each));
    MOTLEY_ASSIGN(const std::string text, read_file(named.second));
    MOTLEY_RETURN_IF_ERROR(
        cost::add_sailor_times(text, named.second, cost::sailor_kind(named.first), profile));
  }
  if (files.sizes.empty())
    return usage_error("cli.layers", "--layer-times wants --layer-sizes FILE (llm_info.json)");
  MOTLEY_ASSIGN(const std::string text, read_file(files.sizes));
  MOTLEY_RETURN_IF_ERROR(cost::add_sailor_sizes(text, files.sizes, profile));
  return profile;
}

Result<cost::LayerProfile> read_metis(const LayerFiles& files) {
  std::vector<cost::MetisFile> texts;
  for (const std::string& path : files.metis) {
    MOTLEY_ASSIGN(std::string text, read_file(path));
    texts.push_back({path, std::move(text)});
  }
  return cost::parse_metis_profile(texts);
}

}  // namespace

Result<std::shared_ptr<const search::LayerModel>> read_layers(const LayerFiles& files) {
  MOTLEY_ASSIGN(cost::LayerProfile profile,
                files.metis.empty() ? read_sailor(files) : read_metis(files));
  MOTLEY_RETURN_IF_ERROR(cost::verify_layer_profile(profile, cost::built_in_peaks()));
  MOTLEY_ASSIGN(search::LayerModel model, search::make_layer_model(std::move(profile)));
  return std::make_shared<const search::LayerModel>(std::move(model));
}

Result<cost::StageNetwork> read_network(const LayerFiles& files) {
  MOTLEY_ASSIGN(const std::string text, read_file(files.network));
  MOTLEY_ASSIGN(cost::StageNetwork network, cost::parse_sailor_network(text, files.network));
  if (files.pairs.empty()) return network;
  if (files.zone.empty())
    return usage_error("cli.layers", "--layer-pairs wants --layer-zone: whose fits count?");
  MOTLEY_ASSIGN(const std::string pairs, read_file(files.pairs));
  MOTLEY_RETURN_IF_ERROR(cost::add_sailor_pairs(pairs, files.pairs, files.zone, network));
  return network;
}

}  // namespace motley::control
