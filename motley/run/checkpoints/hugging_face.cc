#include "motley/run/checkpoints/hugging_face.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/base/safetensors.h"

namespace motley::run {
namespace {

namespace fs = std::filesystem;
constexpr const char* kConfigFile = "config.json";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr const char* kWeightsFile = "model.safetensors";
constexpr const char* kHalfWritten = ".tmp";
/// Endings of the files that are copied: configuration, tokenizer, templates.
constexpr std::array<std::string_view, 5> kCopied = {".json", ".txt", ".model", ".jinja",
                                                     ".tiktoken"};

Error folder_error(std::string message) {
  return {ErrorKind::kUsage, "run.hugging-face", std::move(message)};
}

std::int64_t bytes_of(const TensorView& tensor) {
  std::int64_t bytes = dtype_size(tensor.dtype);
  for (const std::int64_t size : tensor.shape) bytes *= size;
  return bytes;
}

Result<std::set<std::string>> names_in_source(const std::string& source) {
  std::set<std::string> names;
  std::error_code fault;
  for (const fs::directory_entry& entry : fs::directory_iterator(source, fault)) {
    if (entry.path().extension() != ".safetensors") continue;
    MOTLEY_ASSIGN(const Safetensors file, Safetensors::open(entry.path().string()));
    for (const auto& [name, tensor] : file.tensors()) names.insert(name);
  }
  return names;
}

/// Splits the names into those to write and the tied ones to leave out.
std::pair<std::vector<std::string>, std::vector<std::string>> split_tied(
    const TensorFiles& model, const std::set<std::string>& in_source) {
  std::vector<std::string> kept, absent, left_out;
  for (const std::string& name : model.names())
    (in_source.empty() || in_source.contains(name) ? kept : absent).push_back(name);
  const std::size_t known = kept.size();
  for (const std::string& name : absent) {
    const bool is_tied =
        std::any_of(kept.begin(), kept.begin() + static_cast<std::ptrdiff_t>(known),
                    [&](const std::string& other) { return model.are_equal(name, other); });
    (is_tied ? left_out : kept).push_back(name);
  }
  return {std::move(kept), std::move(left_out)};
}

std::vector<std::vector<std::string>> make_shards(const TensorFiles& model,
                                                  std::span<const std::string> names,
                                                  std::int64_t most) {
  std::vector<std::vector<std::string>> shards(1);
  std::int64_t used = 0;
  for (const std::string& name : names) {
    const std::int64_t bytes = bytes_of(model.view(name));
    if (used + bytes > most && !shards.back().empty()) {
      shards.emplace_back();
      used = 0;
    }
    shards.back().push_back(name);
    used += bytes;
  }
  return shards;
}

Result<std::vector<std::string>> write_weights(const TensorFiles& model,
                                               std::span<const std::vector<std::string>> shards,
                                               const std::string& folder) {
  std::vector<std::string> files;
  Json placed = Json::object();
  std::int64_t total = 0;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    files.push_back(shards.size() == 1
                        ? kWeightsFile
                        : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size()));
    MOTLEY_RETURN_IF_ERROR(model.write_whole(folder + "/" + files.back(), shards[i]));
    for (const std::string& name : shards[i]) {
      placed[name] = files.back();
      total += bytes_of(model.view(name));
    }
  }
  if (shards.size() == 1) return files;
  const Json index = {{"metadata", {{"total_size", total}}}, {"weight_map", std::move(placed)}};
  MOTLEY_RETURN_IF_ERROR(write_file_atomic(folder + "/" + kIndexFile, index.dump(2) + "\n"));
  return files;
}

/// Returns transformers' word for the dtype of all floating-point weights; none if mixed.
std::optional<std::string> dtype_word(const TensorFiles& model) {
  std::set<DType> found;
  for (const std::string& name : model.names())
    if (is_floating(model.view(name).dtype)) found.insert(model.view(name).dtype);
  if (found.size() != 1) return std::nullopt;
  switch (*found.begin()) {
    case DType::kF32:
      return "float32";
    case DType::kBF16:
      return "bfloat16";
    case DType::kF16:
      return "float16";
    default:
      return "float64";
  }
}

/// Returns the configuration with the weights' dtype, to which `from_pretrained` converts them.
Result<std::string> make_config(const TensorFiles& model, const std::string& path) {
  MOTLEY_ASSIGN(std::string text, read_file(path));
  MOTLEY_ASSIGN(Json config, parse_json(text, path));
  if (!config.is_object())
    return tl::make_unexpected(folder_error(path + ": found no object, wanted a configuration"));
  const std::optional<std::string> dtype = dtype_word(model);
  bool is_changed = false;
  for (const char* key : {"dtype", "torch_dtype"}) {
    if (!dtype || !config.contains(key) || config[key] == *dtype) continue;
    config[key] = *dtype;
    is_changed = true;
  }
  return is_changed ? config.dump(2) + "\n" : text;
}

bool is_copied(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  if (!entry.is_regular_file() || name == kConfigFile || name.ends_with(".index.json"))
    return false;
  return std::any_of(kCopied.begin(), kCopied.end(),
                     [&](std::string_view end) { return name.ends_with(end); });
}

Result<void> copy_beside_weights(const TensorFiles& model, const std::string& source,
                                 const std::string& folder) {
  MOTLEY_ASSIGN(const std::string config, make_config(model, source + "/" + kConfigFile));
  MOTLEY_RETURN_IF_ERROR(write_file_atomic(folder + "/" + kConfigFile, config));
  std::error_code fault;
  for (const fs::directory_entry& entry : fs::directory_iterator(source, fault)) {
    if (!is_copied(entry)) continue;
    fs::copy_file(entry.path(), fs::path(folder) / entry.path().filename(), fault);
    if (fault)
      return runtime_error("run.hugging-face", entry.path().string() + ": " + fault.message());
  }
  return {};
}

Result<void> verify_folders(const HuggingFaceOptions& options) {
  std::error_code fault;
  if (!fs::is_regular_file(options.source + "/" + kConfigFile, fault))
    return tl::make_unexpected(
        folder_error(fmt::format("{}: found no config.json, wanted the folder that the model was "
                                 "exported from",
                                 options.source)));
  if (fs::exists(options.target, fault) && !fs::is_empty(options.target, fault))
    return tl::make_unexpected(
        folder_error(options.target + ": is there and is not empty; name another folder"));
  return {};
}

}  // namespace

Result<HuggingFaceFolder> write_hugging_face(const TensorFiles& model,
                                             const HuggingFaceOptions& options) {
  MOTLEY_RETURN_IF_ERROR(verify_folders(options));
  MOTLEY_ASSIGN(const std::set<std::string> in_source, names_in_source(options.source));
  const std::string half = options.target + kHalfWritten;
  std::error_code fault;
  fs::remove_all(half, fault);
  fs::create_directories(half, fault);
  if (fault) return runtime_error("run.hugging-face", half + ": " + fault.message());
  auto [names, left_out] = split_tied(model, in_source);
  HuggingFaceFolder made;
  MOTLEY_ASSIGN(made.weights,
                write_weights(model, make_shards(model, names, options.shard_bytes), half));
  made.left_out = std::move(left_out);
  MOTLEY_RETURN_IF_ERROR(copy_beside_weights(model, options.source, half));
  fs::remove(options.target, fault);
  fs::rename(half, options.target, fault);
  if (fault) return runtime_error("run.hugging-face", options.target + ": " + fault.message());
  return made;
}

}  // namespace motley::run
