#include "motley/run/checkpoints/rank_files.h"

#include <fmt/format.h>

#include <filesystem>
#include <set>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/base/random.h"
#include "motley/base/text.h"
#include "motley/program/effects.h"
#include "motley/program/program_text.h"

namespace motley::run {
namespace {

constexpr const char* kModelFileKey = "motley.of";
constexpr const char* kStepKey = "motley.step";

/// Returns the buffers that rank 0 cannot send: parts, and what only evaluations keep.
std::vector<program::Buffer> own_buffers(const program::DeviceProgram& training,
                                         const std::vector<program::DeviceProgram>& evaluations) {
  std::vector<program::Buffer> wanted;
  std::set<std::string> known;
  const auto take = [&](const program::Buffer& buffer, bool is_own) {
    if (program::is_persistent(buffer.kind) && known.insert(buffer.name).second && is_own)
      wanted.push_back(buffer);
  };
  for (const program::Buffer& buffer : training.buffers) take(buffer, buffer.part.has_value());
  for (const program::DeviceProgram& evaluation : evaluations)
    for (const program::Buffer& buffer : evaluation.buffers) take(buffer, true);
  return wanted;
}

}  // namespace

RankFolder::RankFolder(const std::string& rank_files, int rank)
    : path(fmt::format("{}/rank-{}", rank_files, rank)) {}

std::string RankFolder::evaluation(std::size_t which) const {
  return fmt::format("{}/evaluation-{}.txt", path, which);
}

namespace {

/// Opens and appends the checkpoint files that this host keeps, as listed by RankFiles::held.
Result<void> open_held(const std::string& path, std::vector<std::string>& paths,
                       std::vector<Safetensors>& files) {
  std::error_code code;
  if (!std::filesystem::exists(path, code)) return {};
  MOTLEY_ASSIGN(const std::string text, read_file(path));
  MOTLEY_ASSIGN(const Json json, parse_json(text, path));
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, path));
  MOTLEY_ASSIGN(const Json* held, object.member("files"));
  for (const auto& [file, hash] : held->items()) {
    const std::string wanted = hash.is_string() ? hash.get<std::string>() : "";
    MOTLEY_ASSIGN(files.emplace_back(), open_checked(file, wanted));
    paths.push_back(file);
  }
  return {};
}

}  // namespace

Result<RankWeights> read_rank_weights(const RankFolder& folder) {
  RankWeights weights;
  std::vector<std::string> paths = {folder.weights()};
  MOTLEY_ASSIGN(weights.files.emplace_back(), Safetensors::open(folder.weights()));
  MOTLEY_RETURN_IF_ERROR(open_held(folder.held(), paths, weights.files));
  std::vector<TensorFile> all;
  for (std::size_t i = 0; i < paths.size(); ++i) all.push_back({paths[i], &weights.files[i]});
  MOTLEY_ASSIGN(weights.tensors, TensorFiles::make(all, TensorFiles::Extent::kSome));
  const auto& said = weights.files[0].metadata();
  const auto model = said.find(kModelFileKey), step = said.find(kStepKey);
  const auto number = step == said.end() ? std::nullopt : find_integer(step->second);
  if (model == said.end() || !number)
    return usage_error("run.rank-files",
                       folder.weights() + ": does not say of what step and model it is");
  weights.model_file = model->second;
  weights.step = *number;
  return weights;
}

Result<std::string> hash_model_file(const std::string& path) {
  MOTLEY_ASSIGN(const MappedFile file, MappedFile::open(path));
  return hash_hex(file.text());
}

Result<program::Program> read_program(const std::string& path) {
  MOTLEY_ASSIGN(const std::string text, read_file(path));
  return program::parse_program(text, path);
}

Result<RankFiles> RankFiles::open(const Job& job, program::Program program) {
  RankFiles files;
  files.program_ = std::move(program);
  if (job.evaluation)
    for (const std::string& path : job.evaluation->programs) {
      MOTLEY_ASSIGN(files.evaluations_.emplace_back(), read_program(path));
    }
  MOTLEY_ASSIGN(Safetensors model, Safetensors::open(job.model_path));
  files.model_ = std::make_shared<const Safetensors>(std::move(model));
  MOTLEY_ASSIGN(files.model_file_, hash_model_file(job.model_path));
  const TensorFile whole{job.model_path, files.model_.get()};
  MOTLEY_ASSIGN(files.weights_, TensorFiles::make({&whole, 1}));
  if (job.resume) {
    MOTLEY_ASSIGN(files.checkpoint_,
                  CheckpointStore(job.run_dir).open_latest(TensorFiles::Extent::kSome));
  }
  return files;
}

std::string RankFiles::program(Rank rank) const {
  return program::print_program(program::own_program(program_, rank));
}

std::string RankFiles::evaluation(std::size_t which, Rank rank) const {
  return program::print_program(program::own_program(evaluations_[which], rank));
}

Result<void> RankFiles::write_model(const std::string& path) const {
  return write_safetensors(path, {}, model_->metadata());
}

Result<void> RankFiles::write_weights(Rank rank, const std::string& path) const {
  std::vector<program::DeviceProgram> evaluations;
  for (const program::Program& each : evaluations_)
    evaluations.push_back(each.devices[rank.index()]);
  const auto wanted = own_buffers(program_.devices[rank.index()], evaluations);
  const bool has_own = held(rank, "").has_value();
  std::vector<std::vector<std::byte>> bytes(wanted.size());
  std::vector<SavedTensor> saved;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const program::Buffer& buffer = wanted[i];
    if (buffer.part && has_own) continue;
    program::Buffer original = buffer;
    original.name = buffer.tensor();
    const TensorFiles* source = newest_with(original.name);
    if (source == nullptr && program::may_be_new(buffer.kind))
      continue;  // begins as zeros, or as its parameter
    if (source == nullptr)
      return usage_error("run.missing-tensor", fmt::format("no tensor '{}'", original.name));
    bytes[i].resize(static_cast<std::size_t>(buffer.bytes().value));
    MOTLEY_RETURN_IF_ERROR(source->read(original, bytes[i]));
    SavedTensor& tensor = saved.emplace_back();
    tensor.named = {buffer.name, {buffer.dtype, buffer.shape, bytes[i]}};
    if (buffer.part) tensor.place = TensorPlace{source->view(original.name).shape, *buffer.part};
  }
  return write_tensor_file(path, saved,
                           {{kModelFileKey, model_file_}, {kStepKey, std::to_string(step())}});
}

std::optional<std::string> RankFiles::held(Rank rank, const std::string& kept_folder) const {
  if (!checkpoint_) return std::nullopt;
  const std::string own = fmt::format("-{:05}-of-", rank.index() + 1);
  const WrittenFiles& written = checkpoint_->written;
  Json files = Json::object();
  for (const auto* hashes : {&written.model, &written.optimizer})
    for (const auto& [name, hash] : *hashes) {
      const auto held = written.held.find(name);
      if (held == written.held.end() || name.find(own) == std::string::npos) continue;
      files[fmt::format("{}/{}/{}", kept_folder, held->second.folder, name)] = hash;
    }
  if (files.empty()) return std::nullopt;
  return Json{{"files", std::move(files)}}.dump();
}

const TensorFiles* RankFiles::newest_with(const std::string& name) const {
  if (checkpoint_ && checkpoint_->optimizer.has(name)) return &checkpoint_->optimizer;
  if (checkpoint_ && checkpoint_->model.has(name)) return &checkpoint_->model;
  return weights_.has(name) ? &weights_ : nullptr;
}

}  // namespace motley::run
