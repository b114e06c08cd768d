#include "motley/cli/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "motley/base/file.h"
#include "motley/base/statistics.h"
#include "motley/base/text.h"
#include "motley/program/program_text.h"
#include "motley/report/event_file.h"
#include "motley/run/job.h"
#include "motley/run/launcher.h"
#include "motley/run/processors.h"
#include "motley/synth/lower.h"

namespace motley::cli {
namespace {

std::vector<data::InputSpec> input_specs(const graph::Graph& graph) {
  std::vector<data::InputSpec> specs;
  const graph::Sizes one = {{"batch", 1}};
  for (const ValueId id : graph::values_with_role(graph, graph::ValueRole::kInput)) {
    const graph::Value& value = graph.value(id);
    data::InputSpec spec{value.name, value.dtype, {}};
    for (std::size_t d = 1; d < value.shape.size(); ++d)
      spec.sample_shape.push_back(value.shape[d].evaluate_integer(one));
    specs.push_back(std::move(spec));
  }
  return specs;
}

run::WorkerDevice worker_device(const cluster::Cluster& cluster, DeviceId id,
                                const std::optional<cluster::Route>& route) {
  const cluster::Device& device = cluster.device(id);
  run::WorkerDevice worker;
  worker.name = device.name;
  worker.kind = device.kind;
  worker.host = cluster.node(device.node).host;
  worker.local_index = device.local_index;
  worker.threads = device.threads;
  worker.speed = device.speed;
  worker.memory = device.memory;
  if (route) {
    worker.rate = route->bandwidth.value;
    worker.latency = route->latency.value;
  }
  return worker;
}

/// Gives the emulated devices of this machine processors, where all of them fit.
void place_emulated(std::vector<run::WorkerDevice>& devices) {
  std::vector<run::WorkerDevice*> local;
  std::vector<double> speeds;
  bool emulated = false;
  for (run::WorkerDevice& device : devices) {
    if (device.kind != "cpu" || !device.host.empty()) continue;
    if (device.threads > 1) return;
    emulated = emulated || device.speed < 1;
    local.push_back(&device);
    speeds.push_back(device.speed);
  }
  if (!emulated) return;
  const std::vector<int> places = run::place_on_processors(speeds, run::usable_processors());
  for (std::size_t i = 0; i < places.size(); ++i) local[i]->processor = places[i];
}

/// Are there no links but those that are emulated?
bool are_all_here(const cluster::Cluster& cluster, const std::vector<DeviceId>& devices) {
  return std::all_of(devices.begin(), devices.end(), [&](DeviceId id) {
    return cluster.node(cluster.device(id).node).host.empty();
  });
}

run::Job make_job(const Training& training, const RunDirectory& directory) {
  run::Job job;
  job.run_dir = directory.path;
  job.program_path = directory.program();
  job.model_path = std::filesystem::absolute(training.model_path).string();
  job.data = training.data;
  job.data.path = std::filesystem::absolute(job.data.path).string();
  job.shuffle = training.shuffle;
  job.steps = training.steps;
  job.seed = training.seed;
  job.checkpoint_every = training.checkpoint_every;
  job.resume = training.resume;
  job.timeout_s = training.timeout_s;
  job.transport = training.transport == "auto" ? training.cluster->transport : training.transport;
  job.trace_steps = training.trace_steps;
  std::vector<DeviceId> devices;
  for (const plan::Member& member : plan::members(training.plan)) devices.push_back(member.device);
  const bool is_emulated = training.enforce_links && are_all_here(*training.cluster, devices);
  const auto route = is_emulated ? cluster::group_route(*training.cluster, devices) : std::nullopt;
  for (const DeviceId id : devices)
    job.devices.push_back(worker_device(*training.cluster, id, route));
  if (training.enforce_speed) {
    place_emulated(job.devices);
  } else {
    for (run::WorkerDevice& device : job.devices) device.speed = 1.0;
  }
  return job;
}

Result<void> write_run_directory(const Training& training, const RunDirectory& directory,
                                 const program::Program& program, const run::Job& job) {
  std::error_code code;
  std::filesystem::create_directories(directory.path, code);
  if (code)
    return runtime_error("cli.run-dir", fmt::format("{}: cannot create the run directory: {}",
                                                    directory.path, code.message()));
  MOTLEY_RETURN_IF_ERROR(
      write_file_atomic(directory.plan(), plan::print_plan(training.plan, *training.cluster)));
  MOTLEY_RETURN_IF_ERROR(write_file_atomic(directory.program(), program::print_program(program)));
  MOTLEY_RETURN_IF_ERROR(write_file_atomic(directory.job(), run::job_to_json(job).dump(2)));
  if (!training.predicted_trace.empty())
    return write_file_atomic(directory.predicted(), training.predicted_trace);
  std::filesystem::remove(directory.predicted(), code);  // of another plan
  return {};
}

/// Collects the workers' events, writes log and TensorBoard files, shows progress.
class Monitor {
 public:
  /// Under an external launcher only rank 0 reports here.
  std::size_t reporting() const { return training_.place ? 1 : job_.devices.size(); }

  Monitor(const Training& training, const Context& context, const run::Job& job,
          const RunDirectory& directory)
      : training_(training),
        context_(context),
        job_(job),
        directory_(directory),
        progress_(context, "train") {}

  Result<void> open(const std::map<std::int64_t, LoggedStep>& earlier) {
    for (const auto& [step, logged] : earlier) steps_[step] = logged;
    log_.open(directory_.log(), std::ios::app);
    if (!log_) return runtime_error("cli.log", directory_.log() + ": cannot be written");
    MOTLEY_ASSIGN(auto events, report::EventFile::create(directory_.events(), calendar_seconds()));
    events_.emplace(std::move(events));
    return {};
  }

  void on_event(const run::WorkerEvent& event) {
    if (event.event == "ready" && event.rank == 0) on_ready(event.fields);
    if (event.event == "step") on_step(event.rank, event.fields);
    if (event.event == "checkpoint") checkpoint_ = event.fields.value("path", "");
  }

  TrainingResult result() const {
    TrainingResult result;
    result.first_step = first_step_;
    result.lost_steps = lost_steps_;
    result.checkpoint = checkpoint_;
    for (const auto& [step, logged] : steps_) result.losses.push_back(logged.loss);
    result.step_s_median = upper_median(step_seconds_);
    const std::size_t ranks = reporting();
    result.busy.assign(ranks, 0);
    result.peak_bytes.assign(ranks, 0);
    double total = 0;
    for (const auto& [step, logged] : steps_) {
      if (step < first_step_ || logged.compute_s.size() != ranks) continue;
      total += logged.step_s;
      for (std::size_t r = 0; r < ranks; ++r) {
        result.busy[r] += logged.compute_s[r];
        result.peak_bytes[r] = std::max(result.peak_bytes[r], logged.peak_bytes[r]);
      }
    }
    for (double& busy : result.busy) busy = total > 0 ? busy / total : 0;
    return result;
  }

 private:
  /// A step is complete when every rank has reported it.
  struct Pending {
    LoggedStep logged;
    std::size_t reports = 0;
  };

  void on_ready(const Json& fields) {
    first_step_ = fields.value("first_step", std::int64_t{0});
    lost_steps_ =
        std::max<std::int64_t>(0, steps_.empty() ? 0 : steps_.rbegin()->first + 1 - first_step_);
    steps_.erase(steps_.lower_bound(first_step_), steps_.end());
    if (first_step_ > 0)
      context_.note(fmt::format(
          "resume from step {}{}", first_step_,
          lost_steps_ > 0 ? fmt::format(", {} steps are done again", lost_steps_) : ""));
    if (const std::string note = fields.value("note", ""); !note.empty()) context_.note(note);
  }

  void on_step(int rank, const Json& fields) {
    const std::int64_t step = fields.value("step", std::int64_t{0});
    Pending& pending = pending_[step];
    pending.logged.compute_s.resize(reporting());
    pending.logged.peak_bytes.resize(reporting());
    const auto r = static_cast<std::size_t>(rank);
    if (r >= reporting()) return;
    pending.logged.compute_s[r] = fields.value("compute_s", 0.0);
    pending.logged.peak_bytes[r] = fields.value("peak_bytes", std::int64_t{0});
    pending.logged.step_s = std::max(pending.logged.step_s, fields.value("step_s", 0.0));
    if (rank == 0) pending.logged.loss = fields.value("loss", std::nan(""));
    if (++pending.reports == reporting()) complete(step, pending.logged);
  }

  void complete(std::int64_t step, const LoggedStep logged) {
    pending_.erase(step);
    steps_[step] = logged;
    log_ << print_logged_step(step, logged) << '\n' << std::flush;
    if (step > first_step_) step_seconds_.push_back(logged.step_s);
    write_scalars(step, logged);
    const std::int64_t left = training_.steps - step - 1;
    const double pace = step_seconds_.empty() ? logged.step_s : upper_median(recent());
    progress_.update(step + 1, training_.steps,
                     fmt::format("loss: {:.4f}  step: {}{}  busy {}  eta {}", logged.loss,
                                 format_seconds(Seconds(pace)), against_plan(pace), busy(logged),
                                 format_seconds(Seconds(pace * static_cast<double>(left)))));
  }

  std::vector<double> recent() const {
    const std::size_t n = std::min<std::size_t>(step_seconds_.size(), 20);
    return {step_seconds_.end() - static_cast<std::ptrdiff_t>(n), step_seconds_.end()};
  }

  std::string against_plan(double pace) const {
    if (!training_.predicted_step) return "";
    const double plan = training_.predicted_step->value;
    return fmt::format(" (plan {}, {:+.1f}%)", format_seconds(*training_.predicted_step),
                       100 * (pace - plan) / plan);
  }

  std::string busy(const LoggedStep& logged) const {
    std::vector<std::string> parts;
    for (std::size_t r = 0; r < logged.compute_s.size(); ++r)
      parts.push_back(fmt::format("{} {:.0f}%", job_.devices[r].name,
                                  100 * logged.compute_s[r] / std::max(1e-12, logged.step_s)));
    return join(parts, " ");
  }

  /// torchtitan's tag names, and ours for what it does not have.
  void write_scalars(std::int64_t step, const LoggedStep& logged) {
    if (!events_) return;
    std::vector<report::EventFile::Scalar> scalars = {
        {"loss_metrics/global_avg_loss", logged.loss},
        {"time_metrics/end_to_end(s)", logged.step_s},
        {"throughput(samples/s)",
         static_cast<double>(training_.plan.global_batch) / std::max(1e-12, logged.step_s)}};
    for (std::size_t r = 0; r < logged.compute_s.size(); ++r) {
      const std::string& device = job_.devices[r].name;
      scalars.push_back({"balance/busy(%)/" + device,
                         100 * logged.compute_s[r] / std::max(1e-12, logged.step_s)});
      scalars.push_back({"memory/max_active(GiB)/" + device,
                         static_cast<double>(logged.peak_bytes[r]) / (1 << 30)});
    }
    if (training_.predicted_step)
      scalars.push_back({"plan/predicted_step(s)", training_.predicted_step->value});
    if (const auto written = events_->write(step, calendar_seconds(), scalars); !written) {
      context_.note("warning: " + written.error().message + "; going on without");
      events_.reset();  // a run never fails because of its metrics
    }
  }

  const Training& training_;
  const Context& context_;
  const run::Job& job_;
  const RunDirectory& directory_;
  Progress progress_;
  std::ofstream log_;
  std::optional<report::EventFile> events_;
  std::map<std::int64_t, LoggedStep> steps_;
  std::map<std::int64_t, Pending> pending_;
  std::vector<double> step_seconds_;
  std::string checkpoint_;
  std::int64_t first_step_ = 0, lost_steps_ = 0;
};

/// Everything that can be wrong with the data is said before a worker starts.
Result<void> check_data(const Training& training) {
  MOTLEY_ASSIGN(const auto dataset,
                data::open_dataset(training.data, input_specs(training.model->graph)));
  if (dataset->samples() < 1)
    return usage_error("data.empty", training.data.path + ": holds no sample");
  return {};
}

}  // namespace

Result<std::optional<run::RankPlace>> rank_place(const Context& context) {
  return run::find_rank_place(context.environment);
}

Result<int> join_job(const run::RankPlace& place, const Context& context) {
  context.note(fmt::format("rank {} of {} ({})", place.rank, place.size, place.source));
  // The worker has timeouts of its own for every wait; this one only bounds a lifetime.
  constexpr double kForever = 1e9;
  MOTLEY_ASSIGN(const std::string events, run::run_worker(context.worker, {"join"}, kForever));
  for (const std::string_view line : split(events, '\n')) {
    const auto event = run::parse_event(line);
    if (event && event->event == "done" && event->fields.value("reason", "") == "stopped")
      return kStopped;
  }
  return kDone;
}

Result<TrainingResult> train(const Training& training, const Context& context) {
  if (!training.model->weights)
    return usage_error("cli.graph-only", training.model_path +
                                             ": holds no weights (exported with --graph-only); "
                                             "export it again without --graph-only to train");
  MOTLEY_RETURN_IF_ERROR(check_data(training));
  MOTLEY_ASSIGN(const program::Program program,
                synth::lower(training.model->graph, training.plan, *training.cluster));
  const RunDirectory directory{std::filesystem::absolute(training.run_dir).string()};
  const run::Job job = make_job(training, directory);
  MOTLEY_RETURN_IF_ERROR(write_run_directory(training, directory, program, job));
  if (phase(context, "synth", [&] { return program::print_program(program); }))
    return TrainingResult{};

  std::map<std::int64_t, LoggedStep> earlier;
  if (training.resume) {
    MOTLEY_ASSIGN(earlier, read_log(directory));
  } else {
    std::error_code code;
    std::filesystem::remove(directory.log(), code);
  }
  Monitor monitor(training, context, job, directory);
  MOTLEY_RETURN_IF_ERROR(monitor.open(earlier));
  const run::JobOutcome outcome =
      run::launch(job,
                  {.worker = context.worker,
                   .job_path = directory.job(),
                   .launched = training.place.has_value()},
                  [&](const run::WorkerEvent& event) { monitor.on_event(event); });
  if (outcome.end == run::JobEnd::kFailed) return tl::make_unexpected(outcome.error);
  TrainingResult result = monitor.result();
  result.stopped = outcome.end == run::JobEnd::kStopped;
  std::error_code code;
  const auto target = std::filesystem::read_symlink(directory.latest_checkpoint(), code);
  if (!code) result.checkpoint = directory.path + "/checkpoint/" + target.filename().string();
  return result;
}

Json training_to_json(const TrainingResult& result, const Training& training) {
  Json devices = Json::array();
  const std::vector<plan::Member> members = plan::members(training.plan);
  for (std::size_t r = 0; r < members.size(); ++r) {
    Json device = {{"name", training.cluster->device(members[r].device).name},
                   {"samples", members[r].samples}};
    if (r < result.busy.size()) device["busy_share"] = result.busy[r];
    if (r < result.peak_bytes.size()) device["peak_bytes"] = result.peak_bytes[r];
    devices.push_back(std::move(device));
  }
  return {{"steps", result.losses.size()},
          {"losses", result.losses},
          {"step_s_median", result.step_s_median},
          {"predicted_step_s",
           training.predicted_step ? Json(training.predicted_step->value) : Json(nullptr)},
          {"checkpoint", result.checkpoint},
          {"devices", std::move(devices)},
          {"lost_steps", result.lost_steps},
          {"first_step", result.first_step},
          {"stopped", result.stopped},
          {"run_dir", training.run_dir}};
}

}  // namespace motley::cli
