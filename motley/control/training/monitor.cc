#include "motley/control/training/monitor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "motley/base/json.h"
#include "motley/base/statistics.h"

namespace motley::control {
namespace {

constexpr std::size_t kRecentSteps = 20;

/// Is this the event of the program's first rank, which reports for all?
bool leads(const run::WorkerEvent& event) { return event.fields.value("leads", event.rank == 0); }

double share(double part, double whole) { return part / std::max(1e-12, whole); }

}  // namespace

Result<void> Monitor::open(const RunDirectory& directory, Log earlier) {
  known_ = std::move(earlier);
  log_.open(directory.log(), std::ios::app);
  if (!log_) return runtime_error("cli.log", directory.log() + ": cannot be written");
  MOTLEY_ASSIGN(auto events,
                report::EventFile::create(directory.events(), clock_.calendar().value));
  events_.emplace(std::move(events));
  return {};
}

void Monitor::know_rank(int rank, const std::string& device) {
  const auto at = static_cast<std::size_t>(rank);
  watched_.devices.resize(std::max(ranks(), at + 1));
  watched_.devices[at] = device;
}

Wish Monitor::on_event(const run::WorkerEvent& event) {
  if (event.event == "ready" && leads(event)) on_ready(event.fields);
  if (event.event == "step") on_step(event);
  if (event.event == "evaluation") on_evaluation(event.fields);
  if (event.event == "change") on_recovery(event.fields);
  if (event.event == "copies") listener_.note(event.fields.value("note", ""));
  if (event.event == "checkpoint") on_checkpoint(event.fields);
  return wish_;
}

void Monitor::end() {
  for (auto& [step, pending] : std::exchange(pending_, {}))
    if (step < saved_steps_ && pending.has_loss) complete(step, pending.logged);
}

Measured Monitor::result() const {
  Measured result;
  result.first_step = first_step_;
  result.lost_steps = lost_steps_;
  result.checkpoint = checkpoint_;
  for (const auto& [step, logged] : known_.steps) result.losses.push_back(logged.loss);
  for (const auto& [step, logged] : known_.evaluations) {
    result.evaluations[step] = logged.evaluation;
    if (logged.is_best) result.best_step = step;
  }
  result.step = Seconds(upper_median(step_seconds_));
  result.devices = watched_.devices;
  result.busy.assign(ranks(), 0);
  result.peak_bytes.assign(ranks(), 0);
  double total = 0;
  for (const auto& [step, logged] : known_.steps) {
    // An earlier call may have had other ranks, and ranks may have joined.
    if (step < std::max(first_step_, generation_begin_) || logged.compute_s.size() > ranks())
      continue;
    total += logged.step_s;
    for (std::size_t r = 0; r < logged.compute_s.size(); ++r) {
      result.busy[r] += logged.compute_s[r];
      result.peak_bytes[r] = std::max(result.peak_bytes[r], logged.peak_bytes[r]);
    }
  }
  result.waiting = waiting();
  for (double& busy : result.busy) busy = total > 0 ? busy / total : 0;
  return result;
}

void Monitor::on_checkpoint(const Json& fields) {
  checkpoint_ = fields.value("path", "");
  saved_steps_ = fields.value("step", saved_steps_);
  if (const std::string note = fields.value("note", ""); !note.empty()) listener_.note(note);
}

void Monitor::on_ready(const Json& fields) {
  first_step_ = fields.value("first_step", std::int64_t{0});
  const std::int64_t known = known_.steps.empty() ? 0 : known_.steps.rbegin()->first + 1;
  lost_steps_ = std::max<std::int64_t>(0, known - first_step_);
  known_.forget_from(first_step_);
  if (first_step_ > 0)
    listener_.note(
        fmt::format("resume from step {}{}", first_step_,
                    lost_steps_ > 0 ? fmt::format(", {} steps are done again", lost_steps_) : ""));
  if (const std::string note = fields.value("note", ""); !note.empty()) listener_.note(note);
}

/// Handles the loss of devices: steps before `step` are complete, later ones are recomputed.
void Monitor::on_recovery(const Json& fields) {
  if (!fields.value("after_loss", false)) return;
  const std::int64_t step = fields.value("step", std::int64_t{0});
  for (auto& [number, pending] : std::exchange(pending_, {}))
    if (number < step && pending.has_loss) complete(number, pending.logged);
  const std::int64_t known = known_.steps.empty() ? 0 : known_.steps.rbegin()->first + 1;
  lost_steps_ += std::max<std::int64_t>(0, known - step);
  known_.forget_from(step);
}

void Monitor::on_step(const run::WorkerEvent& event) {
  const Json& fields = event.fields;
  const std::int64_t step = fields.value("step", std::int64_t{0});
  Pending& pending = pending_[step];
  pending.logged.compute_s.resize(ranks());
  pending.logged.peak_bytes.resize(ranks());
  const auto r = static_cast<std::size_t>(event.rank);
  if (r >= ranks()) return;
  pending.logged.compute_s[r] = fields.value("compute_s", 0.0);
  pending.logged.peak_bytes[r] = fields.value("peak_bytes", std::int64_t{0});
  pending.logged.step_s = std::max(pending.logged.step_s, fields.value("step_s", 0.0));
  pending.logged.data_s = std::max(pending.logged.data_s, fields.value("data_s", 0.0));
  if (const double loading = fields.value("loading_s", 0.0); loading > pending.logged.loading_s) {
    pending.logged.loading_s = loading;
    pending.logged.loaders = fields.value("loaders", 0);
  }
  pending.logged.generation = fields.value("stint", 0);
  // Every rank knows it; the coordinator's counts, unless that rank is lost.
  if (leads(event) || !pending.has_loss) {
    pending.has_loss = true;
    pending.logged.loss = fields.value("loss", std::nan(""));
    pending.logged.lr = watched_.lr * fields.value("lr_factor", 1.0);
    if (const auto norm = fields.find("gradient_norm"); norm != fields.end())
      pending.logged.gradient_norm = norm->is_number() ? norm->get<double>() : std::nan("");
  }
  if (const auto batch = fields.find("batch"); batch != fields.end())
    pending.logged.batch = batch->get<std::int64_t>();
  if (const auto squares = fields.find("squares"); squares != fields.end())
    pending.noise.add(event.rank, *squares);
  const auto program_ranks = fields.value("ranks", ranks());
  if (++pending.reports < program_ranks) return;
  pending.logged.noise = pending.noise.of_step(step, program_ranks);
  const LoggedStep logged = std::move(pending.logged);
  pending_.erase(step);
  complete(step, logged);
}

void Monitor::complete(std::int64_t step, const LoggedStep& logged) {
  known_.steps[step] = logged;
  log_ << print_logged_step(step, logged) << '\n' << std::flush;
  if (logged.generation != std::exchange(generation_, logged.generation)) {
    // Step statistics are those of the running plan.
    step_seconds_.clear();
    generation_begin_ = step;
  } else if (step > first_step_) {
    step_seconds_.push_back(logged.step_s);
  }
  write_scalars(step, logged);
  note_waiting(step);
  const Seconds usual = step_seconds_.empty() ? Seconds(logged.step_s) : usual_step();
  const StepReport report{step,  watched_.steps,     logged,
                          usual, watched_.predicted, watched_.devices};
  if (listener_.step(report) == Wish::kStop) wish_ = Wish::kStop;
}

Seconds Monitor::usual_step() const {
  const std::size_t n = std::min(step_seconds_.size(), kRecentSteps);
  return Seconds(
      upper_median({step_seconds_.end() - static_cast<std::ptrdiff_t>(n), step_seconds_.end()}));
}

Waiting Monitor::waiting() const {
  double steps = 0, data = 0, loading = 0, computing = 0;
  for (auto at = known_.steps.upper_bound(first_step_); at != known_.steps.end(); ++at) {
    steps += at->second.step_s;
    data += at->second.data_s;
    loading += at->second.loading_s;
    const std::vector<double>& devices = at->second.compute_s;
    if (!devices.empty()) computing += *std::max_element(devices.begin(), devices.end());
  }
  Waiting waiting{share(data, steps), 0, 0};
  if (!waiting.is_noticed()) return waiting;
  waiting.processes = known_.steps.rbegin()->second.loaders;
  // Enough to load a step's samples while the busiest device computes. Waiting lengthens the rest
  // of a step, because devices get samples at different times.
  waiting.wanted = static_cast<int>(std::ceil(share(loading, computing)));
  return waiting;
}

/// Notes waiting once, as soon as it is evident.
void Monitor::note_waiting(std::int64_t step) {
  if (has_noted_waiting_ || step < first_step_ + static_cast<std::int64_t>(kRecentSteps)) return;
  const Waiting found = waiting();
  if (!found.is_noticed()) return;
  has_noted_waiting_ = true;
  listener_.note(print_waiting(found));
}

std::string print_waiting(const Waiting& waiting) {
  const std::string what = fmt::format("waiting for data {:.0f}% of the time", 100 * waiting.share);
  if (waiting.wanted <= waiting.processes)
    return fmt::format(
        "{}: loading takes no more than the work of {} process{}, but these share "
        "cores with the devices",
        what, waiting.processes, waiting.processes == 1 ? "" : "es");
  return fmt::format("{}: {} loading processes a machine would do (--loaders {}), on as many cores",
                     what, waiting.wanted, waiting.wanted);
}

std::string print_evaluation(const run::Evaluation& evaluation) {
  std::string text = fmt::format("loss {:.5f}", evaluation.loss);
  for (const auto& [name, value] : evaluation.metrics)
    text += fmt::format(", {} {:.5g}", name, value);
  return text;
}

/// Writes torchtitan's tags, and our own where torchtitan has none.
void Monitor::write_scalars(std::int64_t step, const LoggedStep& logged) {
  if (!events_) return;
  std::vector<report::EventFile::Scalar> scalars = {
      {"loss_metrics/global_avg_loss", logged.loss},
      {"lr", logged.lr},
      {"time_metrics/end_to_end(s)", logged.step_s},
      {"throughput(samples/s)",
       share(static_cast<double>(logged.batch.value_or(watched_.global_batch)), logged.step_s)}};
  if (logged.loading_s > 0)
    scalars.push_back({"time_metrics/data_loading(%)", 100 * share(logged.data_s, logged.step_s)});
  if (logged.gradient_norm) scalars.push_back({"grad_norm", *logged.gradient_norm});
  for (std::size_t r = 0; r < logged.compute_s.size(); ++r) {
    const std::string& device = watched_.devices[r];
    scalars.push_back(
        {"balance/busy(%)/" + device, 100 * share(logged.compute_s[r], logged.step_s)});
    scalars.push_back({"memory/max_active(GiB)/" + device,
                       static_cast<double>(logged.peak_bytes[r]) / (1 << 30)});
  }
  if (watched_.predicted) scalars.push_back({"plan/predicted_step(s)", watched_.predicted->value});
  write_events(step, scalars);
}

void Monitor::on_evaluation(const Json& fields) {
  const auto object = JsonObject::make(fields, "evaluation");
  if (!object) return;
  JsonObject reader = *object;
  const auto evaluation = evaluation_from_json(reader);
  if (!evaluation) return;
  const std::int64_t step = fields.value("step", std::int64_t{0});
  const LoggedEvaluation logged{*evaluation, fields.value("is_best", false)};
  known_.evaluations[step] = logged;
  log_ << print_logged_evaluation(step, logged) << '\n' << std::flush;
  std::vector<report::EventFile::Scalar> scalars = {{"evaluation/loss", evaluation->loss}};
  for (const auto& [name, value] : evaluation->metrics)
    scalars.push_back({"evaluation/" + name, value});
  listener_.note(fmt::format("evaluated after step {}: {}{}", step, print_evaluation(*evaluation),
                             logged.is_best ? ", the best so far" : ""));
  write_events(step, scalars);
}

void Monitor::write_events(std::int64_t step,
                           const std::vector<report::EventFile::Scalar>& scalars) {
  if (!events_) return;
  if (const auto written = events_->write(step, clock_.calendar().value, scalars); !written) {
    listener_.note("warning: " + written.error().message + "; going on without");
    events_.reset();
  }
}

}  // namespace motley::control
