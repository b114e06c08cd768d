#include "motley/run/torch/rank_training.h"

#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <span>

#include "motley/base/file.h"
#include "motley/base/json_fields.h"
#include "motley/base/random.h"
#include "motley/base/text.h"
#include "motley/graph/reach.h"
#include "motley/program/state_names.h"
#include "motley/run/hosts/here.h"
#include "motley/run/input_specs.h"
#include "motley/run/torch/exchange/clock.h"
#include "motley/run/torch/exchange/copies.h"
#include "motley/run/torch/exchange/file_transfer.h"
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

/// Of parameters and buffers by every state_dict name, tied ones too.
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

std::set<std::string> constant_names(const graph::Graph& graph) {
  std::set<std::string> names;
  for (const ValueId id : graph::values_with_role(graph, graph::ValueRole::kConstant))
    names.insert(graph.value(id).name);
  return names;
}

/// What some device has in a step of the graph.
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

/// First name of `wanted` that `found` lacks.
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
  // Others may have parameters that are not here, and their states.
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

/// What each rank calls its machine.
Result<std::vector<std::string>> share_machines(const WorkerSession& session) {
  if (session.size == 1) return std::vector<std::string>{this_machine()};
  return session.rendezvous->share("machine", this_machine(), session.patience());
}

}  // namespace

RankTraining::RankTraining(WorkerSession& session, const Reporter& reporter)
    : session_(session), reporter_(reporter), checkpoints_(session.job.run_dir) {}

const program::DeviceProgram& RankTraining::program() const {
  return session_.program.devices[static_cast<std::size_t>(session_.rank)];
}

Result<std::unique_ptr<RankTraining>> RankTraining::open(WorkerSession& session,
                                                         const Reporter& reporter) {
  if (session.program.devices.empty())
    return usage_error("run.job", "the job has no program, nothing to train");
  std::unique_ptr<RankTraining> training(new RankTraining(session, reporter));
  MOTLEY_ASSIGN(StatusFile status, StatusFile::create(session.job.run_dir, session.process));
  training->status_ = std::make_shared<StatusFile>(std::move(status));
  MOTLEY_RETURN_IF_ERROR(training->open_model());
  MOTLEY_RETURN_IF_ERROR(join_groups(session));
  MOTLEY_RETURN_IF_ERROR(training->open_executor());
  MOTLEY_RETURN_IF_ERROR(training->open_evaluation());
  if (session.job.batches) training->lr_factor_ = session.job.batches->lr_factor;
  if (session.rank == 0 && session.job.resume) MOTLEY_RETURN_IF_ERROR(training->resume());
  MOTLEY_RETURN_IF_ERROR(training->share_weights());
  return training;
}

Result<void> RankTraining::open_model() {
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
  if (masters == Masters::kBegin) executor.start_masters(weights);
  return {};
}

/// Sets what a program keeps from the model file, or what it has in parts from the rank's own: rank
/// 0 sends the rest.
Result<void> RankTraining::load_weights(Executor& executor) const {
  if (own_weights_) {
    MOTLEY_RETURN_IF_ERROR(executor.load(own_weights_->tensors, false));
    executor.start_masters(own_weights_->tensors);
    return {};
  }
  return load_model(session_.job, *model_, Masters::kBegin, executor);
}

Result<void> RankTraining::open_executor() {
  ExecutorOptions options = executor_options(session_);
  options.timeline_steps = session_.job.trace_steps;
  options.measures_parts = session_.job.changes.has_value();
  MOTLEY_ASSIGN(executor_, Executor::create(program(), options, session_.communicator.get(),
                                            &status_->record()));
  MOTLEY_RETURN_IF_ERROR(load_weights(*executor_));
  note_tensors();
  return {};
}

void RankTraining::note_tensors() {
  persistent_ = executor_->persistent();
  for (const Buffer& buffer : program().buffers)
    if (buffer.part) parts_[buffer.name] = *buffer.part;
  has_parts_ = !parts_.empty();
}

Result<std::unique_ptr<RankTraining>> RankTraining::go_on(WorkerSession& session,
                                                          const Reporter& reporter,
                                                          Handover handover) {
  std::unique_ptr<RankTraining> training(new RankTraining(session, reporter));
  training->model_ = std::move(handover.model);
  training->status_ = std::move(handover.status);
  training->executor_ = std::move(handover.executor);
  training->evaluators_ = std::move(handover.evaluators);
  training->note_tensors();
  training->has_parts_ = handover.some_have_parts;
  training->next_step_ = handover.point.step;
  training->samples_taken_ = handover.point.samples;
  training->lr_factor_ = handover.lr_factor;
  training->saved_step_ = handover.point.saved_step;
  training->saved_path_ = handover.point.saved_path;
  training->evaluated_step_ = handover.point.evaluated_step;
  training->best_ = handover.point.best;
  training->owes_ = handover.after_loss;
  training->stops_ = handover.stops;
  training->begun_ns_ = monotonic_ns() - static_cast<std::int64_t>(handover.point.elapsed_s * 1e9);
  training->has_begun_ = true;
  return training;
}

TrainingPoint RankTraining::point() const {
  return {.step = next_step_,
          .samples = samples_taken_,
          .elapsed_s = elapsed_s(),
          .saved_step = saved_step_,
          .saved_path = saved_path_,
          .saved_host = session_.job.devices[0].host,
          .evaluated_step = evaluated_step_,
          .best = best_};
}

void RankTraining::halt() {
  is_halted_ = true;
  if (session_.rendezvous) session_.rendezvous->cancel();
  if (session_.communicator) session_.communicator->close();
}

Result<void> RankTraining::settle(std::int64_t steps_done) {
  const bool ends = steps_done == next_step_ + 1;
  if (ends ? !may_end_step() : steps_done != next_step_)
    return runtime_error("run.unsettled", fmt::format("{}: {} steps are done here, {} are to be",
                                                      program().device, next_step_, steps_done));
  MOTLEY_RETURN_IF_ERROR(
      executor_->settle(ends ? Executor::Verdict::kEnd : Executor::Verdict::kUndo));
  if (ends) samples_taken_ += session_.program.global_batch;
  next_step_ = steps_done;
  return {};
}

double RankTraining::elapsed_s() const {
  return begun_ns_ == 0 ? 0 : static_cast<double>(monotonic_ns() - begun_ns_) * 1e-9;
}

CheckpointState RankTraining::state() const {
  const auto& batches = session_.job.batches;
  return {.step = next_step_,
          .samples = samples_taken_,
          .seed = session_.job.seed,
          .shuffle = session_.job.shuffle,
          .global_batch = batches ? batches->first : session_.program.global_batch,
          .model_hash = session_.program.model_hash,
          .best = best_};
}

Result<void> RankTraining::load(const Checkpoint& checkpoint) {
  MOTLEY_RETURN_IF_ERROR(verify_checkpoint(checkpoint, state()));
  // What hosts keep has names that are not known here; those of this rank are looked up anyway.
  if (checkpoint.written.held.empty()) MOTLEY_RETURN_IF_ERROR(check_tensors(checkpoint, program()));
  MOTLEY_RETURN_IF_ERROR(executor_->load(checkpoint.model, false));
  MOTLEY_RETURN_IF_ERROR(executor_->load(checkpoint.optimizer, false));
  next_step_ = saved_step_ = checkpoint.state.step;
  samples_taken_ = checkpoint.state.samples;
  best_ = checkpoint.state.best;
  return {};
}

Result<void> RankTraining::resume() {
  MOTLEY_ASSIGN(const std::optional<Checkpoint> found,
                checkpoints_.open_latest(TensorFiles::Extent::kSome));
  if (!found) return {};
  MOTLEY_RETURN_IF_ERROR(load(*found));
  resumed_from_ = saved_path_ = found->path;
  return {};
}

/// Loads the parts that are kept here from what rank 0 resumed from; the rest it will send.
Result<void> RankTraining::follow(const std::string& checkpoint) {
  std::error_code fault;
  if (!std::filesystem::exists(checkpoint, fault))
    return usage_error(
        "run.checkpoint",
        fmt::format("{}: rank 0 resumes from it, rank {} ({}) does not see it; all ranks must see "
                    "one run directory where they keep parts of the parameters: put it on a file "
                    "system that their hosts share",
                    checkpoint, session_.rank, session_.device().name));
  MOTLEY_ASSIGN(const Checkpoint found, open_checkpoint(checkpoint, TensorFiles::Extent::kSome));
  return load(found);
}

/// Makes all replicas equal to rank 0, bit for bit, and tells them the step to begin with. Parts
/// come from files, which must be the same ones.
Result<void> RankTraining::share_weights() {
  if (!session_.rendezvous) return {};
  Rendezvous& rendezvous = *session_.rendezvous;
  if (session_.rank == 0) {
    MOTLEY_RETURN_IF_ERROR(rendezvous.set("resumed from", resumed_from_));
    MOTLEY_RETURN_IF_ERROR(
        rendezvous.set("best", best_ ? fields_to_json(*best_).dump() : std::string("none")));
    MOTLEY_RETURN_IF_ERROR(rendezvous.set("samples", std::to_string(samples_taken_)));
    MOTLEY_RETURN_IF_ERROR(rendezvous.set("first step", std::to_string(next_step_)));
  }
  MOTLEY_ASSIGN(const std::string text, rendezvous.get("first step", session_.patience()));
  const std::int64_t first_step = find_integer(text).value_or(0);
  MOTLEY_ASSIGN(const std::vector<std::string> keepers,
                rendezvous.share("parts", has_parts_ ? "some" : "none", session_.patience()));
  has_parts_ = std::count(keepers.begin(), keepers.end(), "some") > 0;
  if (has_parts_) {
    std::string model_file;
    if (own_weights_) {
      model_file = own_weights_->model_file;
    } else {
      MOTLEY_ASSIGN(model_file, hash_model_file(session_.job.model_path));
    }
    MOTLEY_RETURN_IF_ERROR(rendezvous.agree("model file", model_file));
    MOTLEY_ASSIGN(const std::string checkpoint, rendezvous.get("resumed from"));
    if (own_weights_ && own_weights_->step != first_step)
      return stale_error("run.rank-files",
                         fmt::format("rank {} was given parts of step {}, rank 0 goes on from {}",
                                     session_.rank, own_weights_->step, first_step));
    const bool is_given = session_.rank == 0 || own_weights_.has_value();
    if (!is_given && !checkpoint.empty()) {
      // The lead's ranks have the lead's run directory, of which rank 0 elsewhere was sent a copy.
      MOTLEY_RETURN_IF_ERROR(
          follow(is_elsewhere(session_.rank) ? checkpoints_.latest() : checkpoint));
      if (next_step_ != first_step)
        return stale_error(
            "run.rank-files",
            fmt::format("rank {} has a checkpoint of step {}, rank 0 goes on from {}",
                        session_.rank, next_step_, first_step));
    }
  }
  MOTLEY_ASSIGN(const std::string best, rendezvous.get("best"));
  if (best != "none") {
    MOTLEY_ASSIGN(const Json json, parse_json(best, "best"));
    MOTLEY_ASSIGN(best_, fields_from_json<Best>(json, "best"));
  }
  next_step_ = first_step;
  MOTLEY_ASSIGN(const std::string samples, rendezvous.get("samples"));
  samples_taken_ = find_integer(samples).value_or(0);
  if (session_.rank != 0) saved_step_ = next_step_ > 0 ? next_step_ : -1;
  MOTLEY_RETURN_IF_ERROR(rendezvous.barrier("loaded", session_.patience()));
  const c10::InferenceMode guard;
  for (auto& [name, tensor] : persistent_)
    if (!parts_.contains(name)) MOTLEY_RETURN_IF_ERROR(session_.communicator->broadcast(tensor));
  return {};
}

Json RankTraining::ready_fields() const {
  const auto& memory = session_.device().memory;
  Json fields{{"first_step", next_step_},
              {"device", session_.device().name},
              {"leads", session_.rank == 0},
              {"memory_limit", memory ? Json(memory->value) : Json(nullptr)}};
  if (!resumed_from_.empty()) {
    fields["resumed_from"] = resumed_from_;
    fields["note"] = "resumed from " + resumed_from_;
  }
  return fields;
}

Result<RankTraining::End> RankTraining::run(std::optional<std::int64_t> change_at) {
  MOTLEY_RETURN_IF_ERROR(open_feeds());
  if (!std::exchange(has_begun_, true)) reporter_.event("ready", ready_fields());
  std::optional<End> end;
  if (std::exchange(owes_, false)) {
    StepResult wishes;
    wishes.stop_requested = stops_;
    MOTLEY_ASSIGN(end, close_step(wishes));
  }
  while (!end && !is_last() && !is_over()) {
    if (next_step_ == change_at) return End::kChanged;
    if (is_halted_) return runtime_error("run.halted", "told to stop, as others were lost");
    MOTLEY_ASSIGN(const StepResult result, step_on_data());
    MOTLEY_ASSIGN(end, close_step(result));
  }
  if (end == End::kChanged) return End::kChanged;
  MOTLEY_RETURN_IF_ERROR(leave(end.value_or(End::kFinished)));
  return end.value_or(End::kFinished);
}

/// What is due after a step, and how the training goes on: none, by the next one.
Result<std::optional<RankTraining::End>> RankTraining::close_step(const StepResult& result) {
  const std::int64_t every = session_.job.checkpoint_every;
  MOTLEY_RETURN_IF_ERROR(evaluate());
  const bool last = is_last() || is_over();
  const bool stops = result.stop_requested && !last;
  const bool due = every > 0 && next_step_ % every == 0;
  if (due || last || stops) MOTLEY_RETURN_IF_ERROR(checkpoint());
  if (stops) return End::kStopped;
  if (last) return End::kFinished;
  return result.change_requested ? std::optional(End::kChanged) : std::nullopt;
}

Result<void> RankTraining::leave(End end) {
  MOTLEY_RETURN_IF_ERROR(write_trace());
  if (end == End::kFinished) MOTLEY_RETURN_IF_ERROR(finish());
  reporter_.event("done", Json{{"steps", next_step_},
                               {"reason", end == End::kFinished ? "finished" : "stopped"}});
  // Rank 0 leaves last where it may serve the store; a file needs nobody.
  if (!session_.rendezvous || !session_.rendezvous->options().place) return {};
  const std::string here = fmt::format("end/{}", session_.rank);
  MOTLEY_RETURN_IF_ERROR(session_.rendezvous->set(here, "here"));
  for (int rank = 1; session_.rank == 0 && rank < session_.size; ++rank)
    MOTLEY_RETURN_IF_ERROR(session_.rendezvous->get(fmt::format("end/{}", rank)));
  return {};
}

Result<void> RankTraining::end() { return leave(End::kFinished); }

/// Executors of the programs that evaluate, over the tensors of the one that trains.
Result<void> RankTraining::open_evaluation() {
  if (!session_.job.evaluation) return {};
  ExecutorOptions options = executor_options(session_);
  options.faults.clear();
  options.shared = persistent_;
  for (const program::Program& evaluation : session_.evaluations) {
    const auto& own = evaluation.devices[static_cast<std::size_t>(session_.rank)];
    MOTLEY_ASSIGN(evaluators_.emplace_back(),
                  Executor::create(own, options, session_.communicator.get(), nullptr));
    MOTLEY_RETURN_IF_ERROR(load_weights(*evaluators_.back()));
  }
  return {};
}

/// All samples once, in their order; what is left of them after whole batches by the last program.
Result<Evaluation> RankTraining::run_evaluation() {
  EvaluationSums sums(session_.job.evaluation->outputs);
  for (std::int64_t b = 0; b < batches_evaluated_; ++b) {
    const bool is_rest = evaluators_.size() > 1 && b + 1 == batches_evaluated_;
    const std::size_t which = is_rest ? 1 : 0;
    MOTLEY_ASSIGN(const data::Batch* batch, evaluated_->next());
    MOTLEY_ASSIGN(const StepResult result, evaluate_batch(which, *batch));
    sums.add(result.loss, result.metrics, session_.evaluations[which].global_batch);
  }
  return sums.result();
}

/// Where training's samples go on, and those of evaluations.
Result<void> RankTraining::open_feeds() {
  std::vector<std::string> machines(static_cast<std::size_t>(session_.size));
  const auto& evaluation = session_.job.evaluation;
  if (data::is_loaded(session_.job.data) || (evaluation && data::is_loaded(evaluation->data))) {
    MOTLEY_ASSIGN(machines, share_machines(session_));
  }
  const auto open = [&](const std::string& name, const data::DataSource& source, BatchOrder order,
                        std::optional<std::uint64_t> shuffle) {
    FeedOptions options{.source = source,
                        .inputs = input_specs(model_->graph),
                        .order = std::move(order),
                        .shuffle = shuffle,
                        .rank = session_.rank,
                        .machines = machines,
                        .timeout = session_.job.timeout};
    const std::string key =
        fmt::format("feed/{}/{}", name, machines[static_cast<std::size_t>(session_.rank)]);
    options.share = [this, key](const std::optional<std::string>& text) -> Result<std::string> {
      if (!text) return session_.rendezvous->get(key, session_.patience());
      MOTLEY_RETURN_IF_ERROR(session_.rendezvous->set(key, *text));
      return *text;
    };
    options.on_progress = [this] {
      status_->record().updated_ns.store(monotonic_ns(), std::memory_order_relaxed);
    };
    return open_feed(std::move(options));
  };
  MOTLEY_ASSIGN(samples_,
                open("training", session_.job.data,
                     BatchOrder::endless(batch_kind(session_.program), next_step_, samples_taken_),
                     session_.job.shuffle));
  if (!evaluation) return {};
  std::vector<BatchKind> kinds;
  for (const program::Program& program : session_.evaluations) kinds.push_back(batch_kind(program));
  BatchOrder order = BatchOrder::passes_over(std::move(kinds), evaluation->samples);
  batches_evaluated_ = order.batches_in_pass();
  MOTLEY_ASSIGN(evaluated_, open("evaluation", evaluation->data, std::move(order), std::nullopt));
  return {};
}

/// Where it is time for it. All ranks come to the same numbers, so that they agree on what follows.
Result<void> RankTraining::evaluate() {
  if (!session_.job.evaluation) return {};
  const EvaluationJob& job = *session_.job.evaluation;
  const bool is_due = is_last() || (job.every > 0 && next_step_ % job.every == 0);
  if (!is_due) return {};
  if (evaluated_step_ != next_step_) MOTLEY_RETURN_IF_ERROR(evaluate_now());
  if (!best_ || best_->step != next_step_) return {};
  MOTLEY_RETURN_IF_ERROR(checkpoint());
  return session_.rank == 0 ? checkpoints_.keep_best(saved_path_) : Result<void>();
}

Result<void> RankTraining::evaluate_now() {
  const EvaluationJob& job = *session_.job.evaluation;
  const std::int64_t begin = monotonic_ns();
  auto evaluation = run_evaluation();
  if (!evaluation) {
    // What was trained is not lost where the ranks still talk to each other: where a metric, which
    // all of them have computed, is at fault.
    if (evaluation.error().code == "run.metric") (void)checkpoint();
    return with_context(fmt::format("evaluation after step {}", next_step_),
                        std::move(evaluation).error());
  }
  const double value = evaluation->find(job.watch.metric).value_or(evaluation->loss);
  const bool is_best = update_best(job.watch, value, next_step_, best_);
  evaluated_step_ = next_step_;
  if (session_.rank == 0) {
    Json metrics = Json::object();
    for (const auto& [name, each] : evaluation->metrics) metrics[name] = each;
    reporter_.event("evaluation",
                    Json{{"step", next_step_},
                         {"loss", evaluation->loss},
                         {"metrics", std::move(metrics)},
                         {"is_best", is_best},
                         {"seconds", static_cast<double>(monotonic_ns() - begin) * 1e-9}});
  }
  return {};
}

/// Has patience come to its end?
bool RankTraining::is_over() const {
  const auto& job = session_.job.evaluation;
  return job && job->patience > 0 && best_ && best_->worse_since >= job->patience;
}

/// Have all steps been done?
bool RankTraining::is_last() const { return schedule_step() >= session_.job.steps; }

/// Which step it is for the schedule: where batches change, of so many samples in steps of the
/// first one.
std::int64_t RankTraining::schedule_step() const {
  const auto& batches = session_.job.batches;
  return batches ? samples_taken_ / batches->first : next_step_;
}

Result<StepResult> RankTraining::evaluate_batch(std::size_t program, const data::Batch& batch) {
  return evaluators_[program]->step(next_step_, batch);
}

Result<StepResult> RankTraining::step_on_data() {
  const double lr_factor = lr_factor_ * session_.job.schedule.factor(schedule_step());
  MOTLEY_ASSIGN(const data::Batch* batch, samples_->next());
  return step(*batch, lr_factor);
}

Result<StepResult> RankTraining::step(const data::Batch& batch, double lr_factor) {
  status_->record().step.store(next_step_, std::memory_order_relaxed);
  status_->record().updated_ns.store(monotonic_ns(), std::memory_order_relaxed);
  if (begun_ns_ == 0) begun_ns_ = monotonic_ns();
  if (const WorkerDevice& device = session_.device(); !device.slow.empty())
    executor_->set_speed(device.speed_at(elapsed_s()));
  const bool counts = next_step_ % session_.counts_every->load(std::memory_order_relaxed) == 0;
  MOTLEY_ASSIGN(const StepResult result, executor_->step({next_step_, lr_factor, counts}, batch));
  MOTLEY_RETURN_IF_ERROR(check_finite("loss", result.loss));
  const bool may_overflow = persistent_.contains(std::string(program::kLossScaleState));
  if (result.gradient_norm && !may_overflow)
    MOTLEY_RETURN_IF_ERROR(check_finite("the gradients' norm", *result.gradient_norm));
  Json fields{{"step", next_step_}, {"loss", result.loss}, {"lr_factor", lr_factor}};
  if (result.gradient_norm) fields["gradient_norm"] = *result.gradient_norm;
  const double waited_s = samples_ ? samples_->waited_s() : 0;
  fields["step_s"] = result.step_s + waited_s;  // waiting for data is part of what a step takes
  if (samples_ && samples_->loaders() > 0) {
    fields["loading_s"] = samples_->loading_s();
    fields["loaders"] = samples_->loaders();
  }
  if (waited_s > 0) fields["data_s"] = waited_s;
  fields["compute_s"] = result.compute_s;
  fields["wait_s"] = result.wait_s;
  fields["peak_bytes"] = result.peak_bytes;
  fields["ranks"] = session_.size;
  fields["leads"] = session_.rank == 0;
  if (session_.stint > 0) fields["stint"] = session_.stint;
  if (session_.job.batches) fields["batch"] = session_.program.global_batch;
  if (result.parts)
    fields["parts"] = Json{{"ready", result.parts->ready},
                           {"end", result.parts->end},
                           {"update", result.parts->update},
                           {"exchange", result.parts->exchange},
                           {"blocking", result.parts->blocking}};
  if (const auto squares = mean_squares(result)) fields["squares"] = *squares;
  reporter_.event("step", std::move(fields));
  ++next_step_;
  samples_taken_ += session_.program.global_batch;
  return result;
}

/// Squared norms of the mean gradients of this rank's pieces of the batch and of all. None: not
/// counted.
std::optional<Json> RankTraining::mean_squares(const StepResult& result) const {
  if (!result.squares || !std::isfinite(result.squares->whole)) return std::nullopt;
  Json pieces = Json::array();
  for (const auto& [samples, own] : result.squares->pieces) {
    // The term here is the mean times the share of the samples.
    const double over =
        static_cast<double>(session_.program.global_batch) / static_cast<double>(samples);
    const double mean = own * over * over;
    if (!std::isfinite(mean)) return std::nullopt;
    pieces.push_back({samples, mean});
  }
  return Json{{"pieces", std::move(pieces)}, {"whole", result.squares->whole}};
}

Result<void> RankTraining::check_finite(const std::string& what, double value) const {
  if (std::isfinite(value)) return {};
  const std::string saved = checkpoints_.latest();
  return runtime_error(
      "run.loss-not-finite",
      fmt::format("{} is {} at step {}; {}; try a smaller --lr", what,
                  std::isnan(value) ? "nan" : "infinite", next_step_,
                  saved.empty() ? "there is no checkpoint" : "the last checkpoint is " + saved));
}

/// What this rank keeps of the model and of the optimizer's states: its parts, and on rank 0 also
/// all that is whole.
Result<WrittenFiles> RankTraining::write_files() {
  HostTensors weights, states;
  const auto canonical = canonical_names(model_->graph);
  const auto shapes = parameter_shapes(model_->graph);
  const auto save = [&](HostTensors& into, const std::string& name, const std::string& trained,
                        const std::string& parameter) {
    const auto part = parts_.find(trained);
    if (part != parts_.end() && part->second.is_copy) return;
    // A state of another shape than its parameter's, which others have none of.
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
    for (const auto& [name, view] : model_->weights->tensors())  // no part of a program: as it was
      if (!constants.contains(name) && !persistent_.contains(trained_name(name)) &&
          !used.contains(trained_name(name)))
        weights.add(name, view);
  }
  for (const std::string& name : buffer_names(program(), {BufferKind::kState}))
    save(states, name, name, name.substr(0, name.rfind('/')));
  const int ranks = has_parts_ ? session_.size : 1;
  return own_store().write_part(next_step_,
                                {session_.rank, ranks, weights.saved(), states.saved()});
}

/// For messages; of one on another machine than the lead's where it is.
std::string RankTraining::name_of(int rank) const {
  const WorkerDevice& device = session_.job.devices[static_cast<std::size_t>(rank)];
  if (device.host.empty()) return fmt::format("rank {}", rank);
  return fmt::format("rank {} ({}, host {})", rank, device.name, device.host);
}

/// Has the rank a run directory of its own, on another machine than rank 0's?
bool RankTraining::is_elsewhere(int rank) const {
  const std::vector<WorkerDevice>& devices = session_.job.devices;
  return has_own_directories(session_.job) &&
         devices[static_cast<std::size_t>(rank)].host != devices[0].host;
}

/// Does the rank's host keep its parts?
bool RankTraining::keeps_own() const {
  return !session_.job.kept.empty() && !session_.device().host.empty() &&
         is_elsewhere(session_.rank);
}

/// Where this rank writes its files: rank 0's store, or one of its own on another machine.
CheckpointStore RankTraining::own_store() const {
  if (!is_elsewhere(session_.rank)) return checkpoints_;
  const std::string& folder = keeps_own() ? session_.job.kept : session_.job.run_dir;
  return CheckpointStore(fmt::format("{}/rank-{}", folder, session_.rank));
}

namespace {

std::string transfer_key(std::int64_t step, int rank, const std::string& name) {
  return fmt::format("checkpoint/{}/{}/{}", step, rank, name);
}

std::vector<std::string> names_of(const WrittenFiles& files) {
  std::vector<std::string> names;
  for (const auto* each : {&files.model, &files.optimizer})
    for (const auto& [name, hash] : *each) names.push_back(name);
  return names;
}

}  // namespace

Result<void> RankTraining::receive_files(const WrittenFiles& files, int rank) {
  for (const std::string& name : names_of(files))
    MOTLEY_RETURN_IF_ERROR(receive_file(*session_.rendezvous, transfer_key(next_step_, rank, name),
                                        checkpoints_.half_written(next_step_) + "/" + name,
                                        session_.patience()));
  return {};
}

/// To rank 0; nothing of them is kept here.
Result<void> RankTraining::send_files(const WrittenFiles& files) {
  const std::string folder = own_store().half_written(next_step_);
  for (const std::string& name : names_of(files))
    MOTLEY_RETURN_IF_ERROR(send_file(*session_.rendezvous,
                                     transfer_key(next_step_, session_.rank, name),
                                     folder + "/" + name, session_.patience()));
  std::error_code code;
  // All of the store, which is this rank's alone.
  std::filesystem::remove_all(std::filesystem::path(folder).parent_path().parent_path(), code);
  return {};
}

/// Under their last name here; what rank 0 has to know of where that is.
Result<void> RankTraining::keep_files(WrittenFiles& files) const {
  MOTLEY_ASSIGN(const std::string folder, own_store().keep_part(next_step_));
  // The job's folder is that of the run and the cut, below all that the host keeps.
  const std::filesystem::path root =
      std::filesystem::path(session_.job.kept).parent_path().parent_path();
  for (const std::string& name : names_of(files))
    files.held[name] = {session_.device().host,
                        std::filesystem::path(folder).lexically_relative(root).string()};
  return {};
}

/// Rank 0's way from the folder to a checkpoint. Ranks that keep parts wait for the folder, and
/// say what they wrote, or why not; all have said so before anything is given up.
Result<std::string> RankTraining::finish_checkpoint() {
  MOTLEY_RETURN_IF_ERROR(checkpoints_.begin(next_step_));
  const std::string key = fmt::format("checkpoint/{}/", next_step_);
  const bool is_shared = has_parts_ && session_.rendezvous != nullptr;
  if (is_shared) MOTLEY_RETURN_IF_ERROR(session_.rendezvous->set(key + "folder", "ready"));
  std::vector<Result<WrittenFiles>> parts = {write_files()};
  for (int rank = 1; is_shared && rank < session_.size; ++rank) {
    MOTLEY_ASSIGN(const std::string text,
                  session_.rendezvous->get(fmt::format("{}{}", key, rank), session_.patience()));
    if (!text.starts_with('{')) {
      parts.push_back(
          runtime_error("run.checkpoint-write", fmt::format("{}: {}", name_of(rank), text)));
      continue;
    }
    MOTLEY_ASSIGN(const Json json, parse_json(text, key));
    parts.push_back(fields_from_json<WrittenFiles>(json, key));
    if (parts.back() && parts.back()->held.empty() && is_elsewhere(rank))
      MOTLEY_RETURN_IF_ERROR(receive_files(*parts.back(), rank));
  }
  std::vector<WrittenFiles> written;
  for (Result<WrittenFiles>& part : parts) {
    MOTLEY_ASSIGN(WrittenFiles files, std::move(part));
    written.push_back(std::move(files));
  }
  return checkpoints_.finish(state(), written);
}

Result<std::string> RankTraining::write_checkpoint() {
  auto written = finish_checkpoint();
  if (written) return written;
  Error error = checkpoints_.give_up(next_step_, written.error());
  // Where others are lost meanwhile, that is what is wrong, and those that are left may go on.
  const bool is_elastic = session_.job.changes && session_.job.changes->is_elastic;
  if (is_elastic) error.code = written.error().code;
  if (!session_.device().host.empty()) error.message = name_of(0) + ": " + error.message;
  return tl::make_unexpected(std::move(error));
}

/// Another rank's part in a checkpoint: its files, and waiting for rank 0 to end it.
Result<void> RankTraining::join_checkpoint() {
  const std::string key = fmt::format("checkpoint/{}/", next_step_);
  Rendezvous& rendezvous = *session_.rendezvous;
  if (has_parts_) {
    MOTLEY_ASSIGN(const std::string folder, rendezvous.get(key + "folder", session_.patience()));
    Result<WrittenFiles> files = runtime_error("run.peer-lost", "rank 0 could not make a folder");
    const bool is_away = is_elsewhere(session_.rank);
    if (is_away) MOTLEY_RETURN_IF_ERROR(own_store().begin(next_step_));
    if (folder == "ready") files = write_files();
    if (files && keeps_own()) {
      if (const auto kept = keep_files(*files); !kept) files = tl::make_unexpected(kept.error());
    }
    MOTLEY_RETURN_IF_ERROR(
        rendezvous.set(fmt::format("{}{}", key, session_.rank),
                       files ? fields_to_json(*files).dump() : files.error().message));
    if (is_away && files && !keeps_own()) MOTLEY_RETURN_IF_ERROR(send_files(*files));
  }
  MOTLEY_ASSIGN(const std::string outcome, rendezvous.get(key + "end", session_.patience()));
  if (outcome == "whole") return {};
  return runtime_error("run.peer-lost", fmt::format("rank {}: rank 0 could not write the "
                                                    "checkpoint of step {}",
                                                    session_.rank, next_step_));
}

Result<void> RankTraining::checkpoint() {
  if (saved_step_ == next_step_) return {};
  MOTLEY_RETURN_IF_ERROR(session_.rank == 0 ? lead_checkpoint() : join_checkpoint());
  saved_step_ = next_step_;
  return compare_whole();
}

/// Rank 0's part in a checkpoint.
Result<void> RankTraining::lead_checkpoint() {
  const auto written = write_checkpoint();
  if (session_.rendezvous) {
    const std::string key = fmt::format("checkpoint/{}/", next_step_);
    if (!written) MOTLEY_RETURN_IF_ERROR(session_.rendezvous->set(key + "folder", "failed"));
    MOTLEY_RETURN_IF_ERROR(session_.rendezvous->set(key + "end", written ? "whole" : "failed"));
  }
  MOTLEY_RETURN_IF_ERROR(written);
  saved_path_ = *written;
  reporter_.event("checkpoint", Json{{"step", next_step_}, {"path", *written}});
  return {};
}

/// What all ranks hold is rank 0's, which is saved: now a difference costs nothing but what is said
/// of it, or the job's end where it is none that devices' kernels explain.
Result<void> RankTraining::compare_whole() {
  if (!session_.rendezvous) return {};
  std::map<std::string, at::Tensor> copies;
  for (const std::string& name : buffer_names(
           program(), {BufferKind::kParameter, BufferKind::kState, BufferKind::kModelBuffer}))
    if (!parts_.contains(name)) copies[name] = persistent_.at(name);
  MOTLEY_ASSIGN(const std::vector<CopyDifference> found,
                compare_copies(*session_.rendezvous, *session_.communicator,
                               fmt::format("parameters after step {}", next_step_), copies));
  if (found.empty()) return {};
  const auto worst = std::find_if(found.begin(), found.end(),
                                  [](const CopyDifference& each) { return !each.is_allowed(); });
  const CopyDifference& told = worst == found.end() ? found.front() : *worst;
  const WorkerDevice& device = session_.job.devices[static_cast<std::size_t>(told.rank)];
  const std::string what = fmt::format(
      "after step {} '{}' on rank {} ({}, host {}) differed from rank 0's by up to {:.2g}, allowed "
      "are "
      "{:.2g}; so did {} of its tensors, and those of {} ranks in all",
      next_step_, told.name, told.rank, device.name,
      device.host.empty() ? own_host_name() : device.host, told.difference, told.allowed,
      told.tensors, found.size());
  if (worst != found.end())
    return runtime_error(
        "run.copies-differ",
        fmt::format("{}; the checkpoint of step {} is safe and has rank 0's: check that device and "
                    "its memory, or leave it out (--exclude), and run again to go on from there",
                    what, next_step_));
  if (session_.rank == 0)
    reporter_.event("copies",
                    Json{{"step", next_step_}, {"note", what + "; all have rank 0's now"}});
  return {};
}

Result<void> RankTraining::finish() {
  MOTLEY_RETURN_IF_ERROR(checkpoint());  // a training of no steps: the model as it came
  // On another machine than the lead's: that publishes what it was brought.
  const bool is_away = has_own_directories(session_.job) && !session_.device().host.empty();
  if (session_.rank != 0 || is_away) return {};
  MOTLEY_ASSIGN(const HeldFiles held, held_files(saved_path_));
  if (!held.empty()) return {};  // `consolidate --hosts` puts it together
  EndModels models{saved_path_, best_.has_value(), std::nullopt};
  // Of states that ranks share this one need not have any.
  MOTLEY_ASSIGN(const bool has_average, has_averages(saved_path_));
  if (has_average) models.averages = canonical_names(model_->graph);
  return checkpoints_.publish_all(models);
}

Result<void> RankTraining::write_trace() const {
  if (session_.job.trace_steps == 0) return {};
  const std::string folder = session_.job.run_dir + "/trace";
  std::error_code fault;
  std::filesystem::create_directories(folder, fault);
  if (fault) return runtime_error("run.trace", folder + ": " + fault.message());
  return write_file_atomic(fmt::format("{}/rank-{}.txt", folder, session_.process),
                           trace::print_trace(executor_->timeline()));
}

}  // namespace motley::run
