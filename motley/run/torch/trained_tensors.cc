#include "motley/run/torch/trained_tensors.h"

#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>

#include "motley/graph/reach.h"
#include "motley/program/effects.h"
#include "motley/program/state_names.h"
#include "motley/run/hosts/here.h"
#include "motley/run/input_specs.h"
#include "motley/run/torch/exchange/copies.h"
#include "motley/run/torch/operators/tensors.h"

namespace motley::run {
namespace {

using program::Buffer;
using program::BufferKind;

/// Bytes of tensors, kept alive in host memory.
class HostTensors {
 public:
  void add(const std::string& name, const at::Tensor& tensor,
           std::optional<TensorPlace> place = {}) {
    kept_.push_back(tensor.detach().contiguous().cpu());
    const at::Tensor& host = kept_.back();
    TensorView view;
    view.dtype = find_dtype(host.scalar_type()).value_or(DType::kNone);
    view.shape = host.sizes().vec();
    view.bytes = {static_cast<const std::byte*>(host.const_data_ptr()), host.nbytes()};
    saved_.push_back({{name, view}, std::move(place)});
  }
  void add(const std::string& name, const TensorView& view) {
    saved_.push_back({{name, view}, {}});
  }
  std::span<const SavedTensor> saved() const { return saved_; }

 private:
  std::vector<at::Tensor> kept_;
  std::vector<SavedTensor> saved_;
};

/// Returns shapes of parameters and buffers by every state_dict name, tied ones too.
std::map<std::string, std::vector<std::int64_t>> parameter_shapes(const graph::Graph& graph) {
  std::map<std::string, std::vector<std::int64_t>> shapes;
  for (const graph::Value& value : graph.values) {
    if (value.role != graph::ValueRole::kParameter && value.role != graph::ValueRole::kBuffer)
      continue;
    std::vector<std::int64_t> shape;
    for (const graph::SizeExpr& size : value.shape) shape.push_back(size.evaluate_integer({}));
    for (const std::string& tied : value.tied) shapes[tied] = shape;
    shapes[value.name] = std::move(shape);
  }
  return shapes;
}

/// Starts a mirror of a master whose parameter is not here from the parameter's rows in the files.
void start_mirrored(const Buffer& mirror, const TensorFiles& files, at::Tensor& into) {
  Buffer parameter = mirror;
  parameter.name = mirror.tensor();
  parameter.name.resize(parameter.name.size() - program::kMasterSuffix.size());
  if (!files.has(parameter.name)) return;
  parameter.dtype = files.view(parameter.name).dtype;
  at::Tensor rows =
      at::zeros(parameter.shape, at::TensorOptions(at::kCPU).dtype(scalar_type(parameter.dtype)));
  if (files.read(parameter, {static_cast<std::byte*>(rows.mutable_data_ptr()), rows.nbytes()}))
    into.copy_(rows);
}

/// Initializes master copies that a new training's files lack from the parameters.
void start_masters(const TensorFiles& files, Executor& executor) {
  const c10::InferenceMode no_autograd;
  constexpr std::string_view kSuffix = program::kMasterSuffix;
  std::map<std::string, at::Tensor> tensors = executor.persistent();
  std::map<std::string, const Buffer*> about;
  for (const Buffer& buffer : executor.program().buffers)
    if (program::is_persistent(buffer.kind)) about[buffer.name] = &buffer;
  for (auto& [name, tensor] : tensors) {
    if (!name.ends_with(kSuffix) || files.has(about.at(name)->tensor())) continue;
    const std::string of = name.substr(0, name.size() - kSuffix.size());
    const auto here = tensors.find(of);
    if (here == tensors.end()) {  // only the mirror's original has the parameter
      start_mirrored(*about.at(name), files, tensor);
      continue;
    }
    at::Tensor parameter = here->second;
    if (parameter.numel() != tensor.numel()) {  // covers some rows of the local parameter
      const program::Part rows = about.at(name)->part.value();
      const auto& own = about.at(of)->part;
      const std::int64_t begin = own ? own->begin : 0;
      parameter = parameter.view({rows.before, -1, rows.after})
                      .narrow(1, rows.begin - begin, tensor.numel() / rows.before / rows.after);
    }
    tensor.copy_(parameter.reshape(tensor.sizes()));
  }
}

std::set<std::string> constant_names(const graph::Graph& graph) {
  std::set<std::string> names;
  for (const ValueId id : graph::values_with_role(graph, graph::ValueRole::kConstant))
    names.insert(graph.value(id).name);
  return names;
}

/// Returns the tensors that a step of the graph uses on any device.
std::set<std::string> used_names(const graph::Graph& graph) {
  const graph::Reach live = graph::find_live(graph);
  std::set<std::string> names;
  for (std::size_t i = 0; i < graph.ops.size(); ++i)
    if (live.holds(i))
      graph::for_each_value(graph.ops[i].arguments,
                            [&](ValueId value) { names.insert(graph.value(value).name); });
  return names;
}

std::set<std::string> buffer_names(const program::DeviceProgram& program,
                                   std::initializer_list<BufferKind> kinds) {
  std::set<std::string> names;
  for (const Buffer& buffer : program.buffers)
    if (buffer.view_of.is_none() && std::count(kinds.begin(), kinds.end(), buffer.kind) > 0)
      names.insert(buffer.name);
  return names;
}

const std::string* find_missing(const std::set<std::string>& wanted,
                                const std::set<std::string>& found) {
  for (const std::string& name : wanted)
    if (!found.contains(name)) return &name;
  return nullptr;
}

Result<void> check_tensors(const Checkpoint& checkpoint, const program::DeviceProgram& program) {
  const auto weights = buffer_names(program, {BufferKind::kParameter, BufferKind::kModelBuffer});
  const auto states = buffer_names(program, {BufferKind::kState});
  const std::vector<std::string> model = checkpoint.model.names();
  if (const auto* name = find_missing(weights, std::set<std::string>(model.begin(), model.end())))
    return usage_error("run.checkpoint-other",
                       fmt::format("{}: its model lacks '{}'", checkpoint.path, *name));
  const std::vector<std::string> optimizer = checkpoint.optimizer.names();
  const std::set<std::string> saved(optimizer.begin(), optimizer.end());
  const auto* missing = find_missing(states, saved);
  // Others may have parameters, and their states, that are not here.
  const bool has_all =
      std::none_of(program.buffers.begin(), program.buffers.end(), [](const Buffer& buffer) {
        return buffer.part && buffer.kind != BufferKind::kMirror && buffer.part->before == 1 &&
               buffer.part->after == 1 && buffer.part->begin == 0 &&
               buffer.part->extent == buffer.elements();
      });
  const auto* extra = has_all ? find_missing(saved, states) : nullptr;
  if (missing == nullptr && extra == nullptr) return {};
  return usage_error(
      "run.checkpoint-other",
      fmt::format("{}: its optimizer {} '{}': written with another optimizer; use the same "
                  "one, another --run-dir, or --resume never",
                  checkpoint.path, missing != nullptr ? "lacks" : "has",
                  missing != nullptr ? *missing : *extra));
}

}  // namespace

const program::DeviceProgram& TrainedTensors::program() const {
  return session_.program.devices[static_cast<std::size_t>(session_.rank)];
}

Result<void> TrainedTensors::open_model() {
  MOTLEY_ASSIGN(graph::Model model, graph::read_model(session_.job.model_path));
  model_ = std::make_shared<const graph::Model>(std::move(model));
  if (model_->hash != session_.program.model_hash)
    return stale_error(
        "run.stale-program",
        fmt::format("{}: found model {}, the program was made for {}; plan again",
                    session_.job.model_path, model_->hash, session_.program.model_hash));
  if (model_->weights) return {};
  if (session_.job.rank_files.empty())
    return usage_error("run.graph-only",
                       session_.job.model_path + ": holds no weights (exported with --graph-only)");
  MOTLEY_ASSIGN(own_weights_,
                read_rank_weights(RankFolder(session_.job.rank_files, session_.rank)));
  return {};
}

ExecutorOptions executor_options(const WorkerSession& session, bool moves) {
  const WorkerDevice& device = session.device();
  ExecutorOptions options;
  options.kind = device.kind;
  options.local_index = device.local_index;
  options.speed = device.speed;
  if (device.kind == "cpu") options.memory = device.memory;
  options.seed = session.job.seed;
  for (const Fault& fault : device.faults)
    if (fault.in_move == moves) options.faults.push_back(fault);
  for (const WorkerDevice& each : session.job.devices) options.devices.push_back(each.name);
  return options;
}

Result<void> load_model(const Job& job, const graph::Model& model, Masters masters,
                        Executor& executor) {
  const TensorFile file{job.model_path, &*model.weights};
  MOTLEY_ASSIGN(const TensorFiles weights, TensorFiles::make({&file, 1}));
  MOTLEY_RETURN_IF_ERROR(executor.load(weights, true));
  if (masters == Masters::kBegin) start_masters(weights, executor);
  return {};
}

Result<void> TrainedTensors::load_weights(Executor& executor) const {
  if (own_weights_) {
    MOTLEY_RETURN_IF_ERROR(executor.load(own_weights_->tensors, false));
    start_masters(own_weights_->tensors, executor);
    return {};
  }
  return load_model(session_.job, *model_, Masters::kBegin, executor);
}

Result<void> TrainedTensors::open_executor(StatusRecord& status) {
  ExecutorOptions options = executor_options(session_);
  options.timeline_steps = session_.job.trace_steps;
  options.measures_parts = session_.job.changes.has_value();
  MOTLEY_ASSIGN(executor_,
                Executor::create(program(), options, session_.communicator.get(), &status));
  MOTLEY_RETURN_IF_ERROR(load_weights(*executor_));
  note_tensors();
  return {};
}

void TrainedTensors::note_tensors() {
  persistent_ = executor_->persistent();
  for (const Buffer& buffer : program().buffers)
    if (buffer.part) parts_[buffer.name] = *buffer.part;
  some_have_parts_ = !parts_.empty();
}

void TrainedTensors::take(Handover& handover) {
  model_ = std::move(handover.model);
  executor_ = std::move(handover.executor);
  note_tensors();
  some_have_parts_ = handover.some_have_parts;
}

Result<void> TrainedTensors::load(const Checkpoint& checkpoint) {
  // Files that hosts keep have names unknown here; this rank's tensors are looked up anyway.
  if (checkpoint.written.held.empty()) MOTLEY_RETURN_IF_ERROR(check_tensors(checkpoint, program()));
  MOTLEY_RETURN_IF_ERROR(executor_->load(checkpoint.model, false));
  return executor_->load(checkpoint.optimizer, false);
}

Result<void> TrainedTensors::share_parts() {
  MOTLEY_ASSIGN(
      const std::vector<std::string> keepers,
      session_.rendezvous->share("parts", some_have_parts_ ? "some" : "none", session_.patience()));
  some_have_parts_ = std::count(keepers.begin(), keepers.end(), "some") > 0;
  return {};
}

Result<void> TrainedTensors::take_from_rank_0() {
  const c10::InferenceMode guard;
  for (auto& [name, tensor] : persistent_)
    if (!parts_.contains(name)) MOTLEY_RETURN_IF_ERROR(session_.communicator->broadcast(tensor));
  return {};
}

Result<WrittenFiles> TrainedTensors::write(const CheckpointStore& store, std::int64_t step) const {
  HostTensors weights, states;
  const auto canonical = canonical_names(model_->graph);
  const auto shapes = parameter_shapes(model_->graph);
  const auto save = [&](HostTensors& into, const std::string& name, const std::string& trained,
                        const std::string& parameter) {
    const auto part = parts_.find(trained);
    if (part != parts_.end() && part->second.is_copy) return;
    // A state whose shape differs from its parameter's, held by this rank alone.
    const bool is_whole = part != parts_.end() &&
                          part->second.extent == persistent_.at(trained).numel() &&
                          persistent_.at(trained).sizes().vec() != shapes.at(parameter) &&
                          part->second.before == 1 && part->second.after == 1;
    if (part != parts_.end() && !is_whole)
      into.add(name, persistent_.at(trained), TensorPlace{shapes.at(parameter), part->second});
    else if (is_whole || session_.rank == 0)
      into.add(name, persistent_.at(trained));
  };
  const auto trained_name = [&](const std::string& name) {
    const auto tied = canonical.find(name);
    return tied == canonical.end() ? name : tied->second;
  };
  for (const auto& [name, shape] : shapes)
    if (persistent_.contains(trained_name(name))) save(weights, name, trained_name(name), name);
  if (session_.rank == 0) {
    const auto constants = constant_names(model_->graph);
    const auto used = used_names(model_->graph);
    for (const auto& [name, view] : model_->weights->tensors())  // not in any program: as it was
      if (!constants.contains(name) && !persistent_.contains(trained_name(name)) &&
          !used.contains(trained_name(name)))
        weights.add(name, view);
  }
  for (const std::string& name : buffer_names(program(), {BufferKind::kState}))
    save(states, name, name, name.substr(0, name.rfind('/')));
  const int ranks = some_have_parts_ ? session_.size : 1;
  return store.write_part(step, {session_.rank, ranks, weights.saved(), states.saved()});
}

Result<std::string> TrainedTensors::compare(std::int64_t step) const {
  if (!session_.rendezvous) return std::string();
  std::map<std::string, at::Tensor> copies;
  for (const std::string& name : buffer_names(
           program(), {BufferKind::kParameter, BufferKind::kState, BufferKind::kModelBuffer}))
    if (!parts_.contains(name)) copies[name] = persistent_.at(name);
  MOTLEY_ASSIGN(const std::vector<CopyDifference> found,
                compare_copies(*session_.rendezvous, *session_.communicator,
                               fmt::format("parameters after step {}", step), copies));
  if (found.empty()) return std::string();
  const auto worst = std::find_if(found.begin(), found.end(),
                                  [](const CopyDifference& each) { return !each.is_allowed(); });
  const CopyDifference& told = worst == found.end() ? found.front() : *worst;
  const WorkerDevice& device = session_.job.devices[static_cast<std::size_t>(told.rank)];
  const std::string what = fmt::format(
      "after step {} '{}' on rank {} ({}, host {}) differed from rank 0's by up to {:.2g}, allowed "
      "are "
      "{:.2g}; so did {} of its tensors, and those of {} ranks in all",
      step, told.name, told.rank, device.name, device.host.empty() ? own_host_name() : device.host,
      told.difference, told.allowed, told.tensors, found.size());
  if (worst != found.end())
    return runtime_error(
        "run.copies-differ",
        fmt::format("{}; the checkpoint of step {} is safe and has rank 0's: check that device and "
                    "its memory, or leave it out (--exclude), and run again to go on from there",
                    what, step));
  return what + "; all have rank 0's now";
}

}  // namespace motley::run
