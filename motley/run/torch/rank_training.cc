#include "motley/run/torch/rank_training.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <utility>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/program/state_names.h"
#include "motley/run/torch/exchange/clock.h"
#include "motley/run/torch/training_start.h"

namespace motley::run {
namespace {

/// Returns squared norms of mean gradients of this rank's pieces and the batch; none: not counted.
std::optional<Json> mean_squares(const StepResult& result, std::int64_t global_batch) {
  if (!result.squares || !std::isfinite(result.squares->whole)) return std::nullopt;
  Json pieces = Json::array();
  for (const auto& [samples, own] : result.squares->pieces) {
    // The term here is the mean times the share of the samples.
    const double over = static_cast<double>(global_batch) / static_cast<double>(samples);
    const double mean = own * over * over;
    if (!std::isfinite(mean)) return std::nullopt;
    pieces.push_back({samples, mean});
  }
  return Json{{"pieces", std::move(pieces)}, {"whole", result.squares->whole}};
}

/// Returns the fields of event `step`. `samples`: the step's feed; null: fed externally.
Json step_fields(const WorkerSession& session, const StepResult& result, const StepPlace& place,
                 const Feed* samples) {
  Json fields{{"step", place.step}, {"loss", result.loss}, {"lr_factor", place.lr_factor}};
  if (result.gradient_norm) fields["gradient_norm"] = *result.gradient_norm;
  const double waited_s = samples != nullptr ? samples->waited_s() : 0;
  fields["step_s"] = result.step_s + waited_s;  // waiting for data is part of a step's time
  if (samples != nullptr && samples->loaders() > 0) {
    fields["loading_s"] = samples->loading_s();
    fields["loaders"] = samples->loaders();
  }
  if (waited_s > 0) fields["data_s"] = waited_s;
  fields["compute_s"] = result.compute_s;
  fields["wait_s"] = result.wait_s;
  fields["peak_bytes"] = result.peak_bytes;
  fields["ranks"] = session.size;
  fields["leads"] = session.rank == 0;
  if (session.generation > 0) fields["stint"] = session.generation;
  if (session.job.batches) fields["batch"] = session.program.global_batch;
  if (result.parts)
    fields["parts"] = Json{{"ready", result.parts->ready},
                           {"end", result.parts->end},
                           {"update", result.parts->update},
                           {"exchange", result.parts->exchange},
                           {"blocking", result.parts->blocking}};
  if (const auto squares = mean_squares(result, session.program.global_batch))
    fields["squares"] = *squares;
  return fields;
}

}  // namespace

RankTraining::RankTraining(WorkerSession& session, const Reporter& reporter)
    : session_(session), reporter_(reporter), tensors_(session), checkpoints_(tensors_) {}

Result<std::unique_ptr<RankTraining>> RankTraining::open(WorkerSession& session,
                                                         const Reporter& reporter) {
  if (session.program.devices.empty())
    return usage_error("run.job", "the job has no program, nothing to train");
  std::unique_ptr<RankTraining> training(new RankTraining(session, reporter));
  MOTLEY_ASSIGN(StatusFile status, StatusFile::create(session.job.run_dir, session.process));
  training->status_ = std::make_shared<StatusFile>(std::move(status));
  TrainedTensors& tensors = training->tensors_;
  MOTLEY_RETURN_IF_ERROR(tensors.open_model());
  MOTLEY_RETURN_IF_ERROR(join_groups(session));
  MOTLEY_RETURN_IF_ERROR(tensors.open_executor(training->status_->record()));
  MOTLEY_RETURN_IF_ERROR(training->open_evaluation());
  if (session.job.batches) training->lr_factor_ = session.job.batches->lr_factor;
  MOTLEY_ASSIGN(TrainingStart start, start_training(tensors, training->checkpoints_.store()));
  training->at_ = std::move(start.point);
  training->resumed_from_ = std::move(start.resumed_from);
  return training;
}

Result<std::unique_ptr<RankTraining>> RankTraining::go_on(WorkerSession& session,
                                                          const Reporter& reporter,
                                                          Handover handover) {
  std::unique_ptr<RankTraining> training(new RankTraining(session, reporter));
  training->status_ = std::move(handover.status);
  training->tensors_.take(handover);
  training->evaluators_ = std::move(handover.evaluators);
  training->at_ = handover.point;
  training->lr_factor_ = handover.lr_factor;
  training->owes_ = handover.after_loss;
  training->stops_ = handover.stops;
  training->begun_ns_ = monotonic_ns() - static_cast<std::int64_t>(handover.point.elapsed_s * 1e9);
  training->has_begun_ = true;
  return training;
}

TrainingPoint RankTraining::point() const {
  TrainingPoint point = at_;
  point.elapsed_s = elapsed_s();
  point.saved_host = session_.job.devices[0].host;
  return point;
}

void RankTraining::halt() {
  is_halted_ = true;
  if (session_.rendezvous) session_.rendezvous->cancel();
  if (session_.communicator) session_.communicator->close();
}

Result<void> RankTraining::settle(std::int64_t steps_done) {
  const bool ends = steps_done == at_.step + 1;
  if (ends ? !may_end_step() : steps_done != at_.step)
    return runtime_error("run.unsettled",
                         fmt::format("{}: {} steps are done here, {} are to be",
                                     tensors_.program().device, at_.step, steps_done));
  MOTLEY_RETURN_IF_ERROR(
      tensors_.executor().settle(ends ? Executor::Verdict::kEnd : Executor::Verdict::kUndo));
  if (ends) at_.samples += session_.program.global_batch;
  at_.step = steps_done;
  return {};
}

double RankTraining::elapsed_s() const {
  return begun_ns_ == 0 ? 0 : static_cast<double>(monotonic_ns() - begun_ns_) * 1e-9;
}

Json RankTraining::ready_fields() const {
  const auto& memory = session_.device().memory;
  Json fields{{"first_step", at_.step},
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
  MOTLEY_ASSIGN(feeds_, open_feeds(tensors_, *status_, at_));
  if (!std::exchange(has_begun_, true)) reporter_.event("ready", ready_fields());
  std::optional<End> end;
  if (std::exchange(owes_, false)) {
    StepResult wishes;
    wishes.stop_requested = stops_;
    MOTLEY_ASSIGN(end, close_step(wishes));
  }
  while (!end && !is_last() && !is_over()) {
    if (at_.step == change_at) {
      end = End::kChanged;
      break;
    }
    if (is_halted_) return runtime_error("run.halted", "told to stop, as others were lost");
    MOTLEY_ASSIGN(const StepResult result, step_on_data());
    MOTLEY_ASSIGN(end, close_step(result));
  }
  if (end == End::kChanged) {
    MOTLEY_RETURN_IF_ERROR(tensors_.executor().take_in());
    return End::kChanged;
  }
  MOTLEY_RETURN_IF_ERROR(leave(end.value_or(End::kFinished)));
  return end.value_or(End::kFinished);
}

/// Does what is due after a step. Returns how training ends; none: it continues.
Result<std::optional<RankTraining::End>> RankTraining::close_step(const StepResult& result) {
  const std::int64_t every = session_.job.checkpoint_every;
  MOTLEY_RETURN_IF_ERROR(evaluate());
  const bool last = is_last() || is_over();
  const bool stops = result.stop_requested && !last;
  const bool due = every > 0 && at_.step % every == 0;
  if (due || last || stops) MOTLEY_RETURN_IF_ERROR(checkpoint());
  if (stops) return End::kStopped;
  if (last) return End::kFinished;
  return result.change_requested ? std::optional(End::kChanged) : std::nullopt;
}

Result<void> RankTraining::leave(End end) {
  MOTLEY_RETURN_IF_ERROR(write_trace());
  if (end == End::kFinished) {
    MOTLEY_RETURN_IF_ERROR(checkpoint());  // a training of no steps: the unchanged model
    if (session_.rank == 0)
      MOTLEY_RETURN_IF_ERROR(checkpoints_.publish(at_.saved_path, at_.best.has_value()));
  }
  reporter_.event("done", Json{{"steps", at_.step},
                               {"reason", end == End::kFinished ? "finished" : "stopped"}});
  // Rank 0 leaves last if it may serve the store; a file needs nobody.
  if (!session_.rendezvous || !session_.rendezvous->options().place) return {};
  const std::string here = fmt::format("end/{}", session_.rank);
  MOTLEY_RETURN_IF_ERROR(session_.rendezvous->set(here, "here"));
  for (int rank = 1; session_.rank == 0 && rank < session_.size; ++rank)
    MOTLEY_RETURN_IF_ERROR(session_.rendezvous->get(fmt::format("end/{}", rank)));
  return {};
}

Result<void> RankTraining::end() { return leave(End::kFinished); }

Result<void> RankTraining::open_evaluation() {
  if (!session_.job.evaluation) return {};
  ExecutorOptions options = executor_options(session_);
  options.faults.clear();
  options.shared = persistent();
  for (const program::Program& evaluation : session_.evaluations) {
    const auto& own = evaluation.devices[static_cast<std::size_t>(session_.rank)];
    MOTLEY_ASSIGN(evaluators_.emplace_back(),
                  Executor::create(own, options, session_.communicator.get(), nullptr));
    MOTLEY_RETURN_IF_ERROR(tensors_.load_weights(*evaluators_.back()));
  }
  return {};
}

/// Evaluates all samples once, in order; the last program takes those left after whole batches.
Result<Evaluation> RankTraining::run_evaluation() {
  EvaluationSums sums(session_.job.evaluation->outputs);
  for (std::int64_t b = 0; b < feeds_.batches_evaluated; ++b) {
    const bool is_rest = evaluators_.size() > 1 && b + 1 == feeds_.batches_evaluated;
    const std::size_t which = is_rest ? 1 : 0;
    MOTLEY_ASSIGN(const data::Batch* batch, feeds_.evaluation->next());
    MOTLEY_ASSIGN(const StepResult result, evaluate_batch(which, *batch));
    sums.add(result.loss, result.metrics, session_.evaluations[which].global_batch);
  }
  return sums.result();
}

/// Evaluates if it is due. All ranks compute the same numbers, and so agree on what follows.
Result<void> RankTraining::evaluate() {
  if (!session_.job.evaluation) return {};
  const EvaluationJob& job = *session_.job.evaluation;
  const bool is_due = is_last() || (job.every > 0 && at_.step % job.every == 0);
  if (!is_due) return {};
  if (at_.evaluated_step != at_.step) MOTLEY_RETURN_IF_ERROR(evaluate_now());
  if (!at_.best || at_.best->step != at_.step) return {};
  MOTLEY_RETURN_IF_ERROR(checkpoint());
  return session_.rank == 0 ? checkpoints_.store().keep_best(at_.saved_path) : Result<void>();
}

Result<void> RankTraining::evaluate_now() {
  const EvaluationJob& job = *session_.job.evaluation;
  const std::int64_t begin = monotonic_ns();
  auto evaluation = run_evaluation();
  if (!evaluation) {
    // Saves the training if ranks can still communicate: if only a metric, known to all, failed.
    if (evaluation.error().code == "run.metric") (void)checkpoint();
    return with_context(fmt::format("evaluation after step {}", at_.step),
                        std::move(evaluation).error());
  }
  const double value = evaluation->find(job.watch.metric).value_or(evaluation->loss);
  const bool is_best = update_best(job.watch, value, at_.step, at_.best);
  at_.evaluated_step = at_.step;
  if (session_.rank == 0) {
    Json metrics = Json::object();
    for (const auto& [name, each] : evaluation->metrics) metrics[name] = each;
    reporter_.event("evaluation",
                    Json{{"step", at_.step},
                         {"loss", evaluation->loss},
                         {"metrics", std::move(metrics)},
                         {"is_best", is_best},
                         {"seconds", static_cast<double>(monotonic_ns() - begin) * 1e-9}});
  }
  return {};
}

/// Tells whether patience has run out.
bool RankTraining::is_over() const {
  const auto& job = session_.job.evaluation;
  return job && job->patience > 0 && at_.best && at_.best->worse_since >= job->patience;
}

bool RankTraining::is_last() const { return schedule_step() >= session_.job.steps; }

/// Returns the schedule's step: if batches change, the samples taken in units of the first batch.
std::int64_t RankTraining::schedule_step() const {
  const auto& batches = session_.job.batches;
  return batches ? at_.samples / batches->first : at_.step;
}

Result<StepResult> RankTraining::evaluate_batch(std::size_t program, const data::Batch& batch) {
  MOTLEY_RETURN_IF_ERROR(tensors_.executor().take_in());
  return evaluators_[program]->step(at_.step, batch);
}

Result<StepResult> RankTraining::step_on_data() {
  const double lr_factor = lr_factor_ * session_.job.schedule.factor(schedule_step());
  MOTLEY_ASSIGN(const data::Batch* batch, feeds_.training->next());
  return step(*batch, lr_factor);
}

Result<StepResult> RankTraining::step(const data::Batch& batch, double lr_factor) {
  status_->record().step.store(at_.step, std::memory_order_relaxed);
  status_->record().updated_ns.store(monotonic_ns(), std::memory_order_relaxed);
  if (begun_ns_ == 0) begun_ns_ = monotonic_ns();
  if (const WorkerDevice& device = session_.device(); !device.slow.empty())
    tensors_.executor().set_speed(device.speed_at(elapsed_s()));
  const StepPlace place(at_.step, lr_factor,
                        at_.step % session_.counts_every->load(std::memory_order_relaxed) == 0);
  MOTLEY_ASSIGN(const StepResult result, tensors_.executor().step(place, batch));
  MOTLEY_RETURN_IF_ERROR(check_finite("loss", result.loss));
  const bool may_overflow = persistent().contains(std::string(program::kLossScaleState));
  if (result.gradient_norm && !may_overflow)
    MOTLEY_RETURN_IF_ERROR(check_finite("the gradients' norm", *result.gradient_norm));
  reporter_.event("step", step_fields(session_, result, place, feeds_.training.get()));
  ++at_.step;
  at_.samples += session_.program.global_batch;
  return result;
}

Result<void> RankTraining::check_finite(const std::string& what, double value) const {
  if (std::isfinite(value)) return {};
  const std::string saved = checkpoints_.store().latest();
  return runtime_error(
      "run.loss-not-finite",
      fmt::format("{} is {} at step {}; {}; try a smaller --lr", what,
                  std::isnan(value) ? "nan" : "infinite", at_.step,
                  saved.empty() ? "there is no checkpoint" : "the last checkpoint is " + saved));
}

Result<void> RankTraining::checkpoint() {
  if (at_.saved_step == at_.step) return {};
  MOTLEY_RETURN_IF_ERROR(tensors_.executor().take_in());
  MOTLEY_ASSIGN(std::string written, checkpoints_.write(checkpoint_state(session_, at_)));
  if (session_.rank == 0) {
    at_.saved_path = std::move(written);
    reporter_.event("checkpoint", Json{{"step", at_.step}, {"path", at_.saved_path}});
  }
  at_.saved_step = at_.step;
  MOTLEY_ASSIGN(const std::string note, tensors_.compare(at_.step));
  if (session_.rank == 0 && !note.empty())
    reporter_.event("copies", Json{{"step", at_.step}, {"note", note}});
  return {};
}

Result<void> RankTraining::write_trace() const {
  if (session_.job.trace_steps == 0) return {};
  const std::string folder = session_.job.run_dir + "/trace";
  std::error_code fault;
  std::filesystem::create_directories(folder, fault);
  if (fault) return runtime_error("run.trace", folder + ": " + fault.message());
  return write_file_atomic(fmt::format("{}/rank-{}.txt", folder, session_.process),
                           trace::print_trace(tensors_.executor().timeline()));
}

}  // namespace motley::run
