#include "motley/control/training/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/base/random.h"
#include "motley/control/planning/placing.h"
#include "motley/control/survey/found_cluster.h"
#include "motley/control/training/notices.h"
#include "motley/control/training/requests.h"
#include "motley/control/training/trials.h"
#include "motley/control/view/found_run.h"
#include "motley/program/program_text.h"
#include "motley/run/batch_order.h"
#include "motley/run/feed/loader.h"
#include "motley/run/hosts/here.h"
#include "motley/run/input_specs.h"
#include "motley/run/launch/processors.h"

namespace motley::control {
namespace {

std::vector<Bytes> peaks_of(const Predicted& predicted) {
  std::vector<Bytes> peaks;
  for (const DevicePrediction& device : predicted.devices)
    peaks.push_back(device.price.memory.total);
  return peaks;
}

/// A device that stays slow; a text form has no infinity.
constexpr double kLatestSlowness = 1e9;

/// Checks the conditions: a run can only slow down emulated devices of this machine.
Result<void> check_conditions(const Inputs& inputs, const simulate::Conditions& conditions,
                              bool is_elastic) {
  if (!conditions.absences.empty() && !is_elastic)
    return usage_error("run.conditions",
                       "conditions: device '" + conditions.absences[0].device +
                           "' goes away: a run ends when a device does; add --elastic, or leave "
                           "absences out");
  for (const simulate::Fault& fault : conditions.faults)
    MOTLEY_RETURN_IF_ERROR(cluster::find_device(inputs.cluster, fault.device));
  for (const simulate::Absence& absence : conditions.absences)
    MOTLEY_RETURN_IF_ERROR(cluster::find_device(inputs.cluster, absence.device));
  if (!conditions.jitter.empty())
    return usage_error("run.conditions",
                       "conditions: jitter of '" + conditions.jitter.begin()->first +
                           "': a machine has its own; leave it out, or simulate with it");
  for (const simulate::SlowDown& slow : conditions.slow_downs) {
    MOTLEY_ASSIGN(const DeviceId id, cluster::find_device(inputs.cluster, slow.device));
    const bool is_here =
        inputs.cluster.device(id).kind == "cpu" && are_all_here(inputs.cluster, {id});
    if (!is_here)
      return usage_error("run.conditions",
                         "conditions: '" + slow.device +
                             "' is no CPU device of this machine: others cannot be made slow");
    if (!(slow.factor >= 1))
      return usage_error("run.conditions",
                         fmt::format("conditions: '{}': a factor of {:g}: a run can only be slowed",
                                     slow.device, slow.factor));
  }
  return {};
}

/// A dataset may list many files before it opens.
constexpr Seconds kOpening{600};

}  // namespace

Result<std::int64_t> check_trainable(const Inputs& inputs,
                                     const std::optional<std::uint64_t>& shuffle,
                                     data::DataSource& source) {
  if (!inputs.model->weights)
    return usage_error("cli.graph-only", inputs.model_path +
                                             ": holds no weights (exported with --graph-only); "
                                             "export it again without --graph-only to train");
  if (source.path.empty()) return 0;  // a script has the samples
  const std::vector<data::InputSpec> specs = run::input_specs(inputs.graph());
  source.path = std::filesystem::absolute(source.path).string();
  if (data::is_loaded(source)) {
    MOTLEY_ASSIGN(source.samples, run::count_loaded_samples({source, specs}, kOpening));
    MOTLEY_ASSIGN(const auto numbers, run::SampleNumbers::make(source, source.samples, shuffle));
    return numbers.samples();
  }
  MOTLEY_ASSIGN(const auto dataset, data::open_dataset(source, specs));
  if (dataset->samples() < 1) return usage_error("data.empty", source.path + ": holds no sample");
  return dataset->samples();
}

namespace {

/// Pins this machine's emulated devices to processors if all fit.
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

std::vector<run::WorkerDevice> worker_devices(const cluster::Cluster& cluster,
                                              const std::vector<DeviceId>& ids, Enforce enforce) {
  const auto route =
      enforce == Enforce::kSpeedsAndLinks ? emulated_route(cluster, ids) : std::nullopt;
  std::vector<run::WorkerDevice> devices;
  for (const DeviceId id : ids) devices.push_back(worker_device(cluster, id, route));
  if (enforce == Enforce::kNothing) {
    for (run::WorkerDevice& device : devices) device.speed = 1.0;
  } else {
    place_emulated(devices);
  }
  return devices;
}

run::Job make_job(const PreparedRun& prepared) {
  const TrainChoices& choices = prepared.choices;
  run::Job job{choices};
  job.run_dir = prepared.directory.path;
  job.program_path = prepared.directory.program();
  job.model_path = std::filesystem::absolute(prepared.inputs->model_path).string();
  job.lr = prepared.planned->plan.recipe.optimizer.lr;
  if (choices.parts_at == TrainChoices::PartsAt::kHosts)
    job.kept = hash_hex(run::own_host_name() + ":" + job.run_dir);
  const cluster::Cluster& cluster = prepared.inputs->cluster;
  if (job.transport == "auto") job.transport = cluster.transport;
  std::vector<DeviceId> ids;
  for (const plan::Member& member : plan::members(prepared.planned->plan))
    ids.push_back(member.device);
  if (prepared.adaptation) {
    ids = prepared.adaptation->devices();
    job.changes.emplace();
    job.batches = prepared.adaptation->batches;
    if (job.batches)
      job.batches->lr_factor =
          prepared.adaptation->candidates[static_cast<std::size_t>(prepared.adaptation->first)]
              .lr_factor;
    job.changes->is_elastic = prepared.adaptation->replan != nullptr;
    job.changes->absent = prepared.adaptation->absent;
    for (const policy::Decision& given : prepared.adaptation->given)
      job.changes->at.push_back(given.begins);
  }
  job.devices = worker_devices(cluster, ids, choices.enforce);
  if (prepared.adaptation && prepared.adaptation->taken_over)
    for (std::size_t i = 0; i < job.devices.size(); ++i)
      job.devices[i].host = prepared.adaptation->taken_over->hosts[i];
  for (const simulate::SlowDown& slow : choices.conditions.slow_downs)
    for (run::WorkerDevice& device : job.devices)
      if (device.name == slow.device)
        device.slow.push_back(
            {slow.from.value, std::min(slow.until.value, kLatestSlowness), slow.factor});
  for (const simulate::Fault& fault : choices.conditions.faults)
    for (run::WorkerDevice& device : job.devices)
      if (device.name == fault.device)
        device.faults.push_back({fault.step, fault.instruction, fault.hangs, fault.in_move});
  for (run::WorkerDevice& device : job.devices)
    device.tf32 = prepared.planned->plan.tf32 && device.kind == "cuda";
  return job;
}

Result<void> write_run_directory(const PreparedRun& prepared, const Predicted* predicted) {
  const RunDirectory& directory = prepared.directory;
  const Planned& planned = *prepared.planned;
  std::error_code code;
  MOTLEY_RETURN_IF_ERROR(write_file_atomic(
      directory.plan(), plan::print_plan(planned.plan, prepared.inputs->cluster)));
  MOTLEY_RETURN_IF_ERROR(
      write_file_atomic(directory.cluster(), cluster::print_cluster(prepared.inputs->cluster)));
  MOTLEY_RETURN_IF_ERROR(
      write_file_atomic(directory.program(), program::print_program(*planned.program)));
  for (const std::string& ended : {directory.summary(), directory.failure(), directory.start()})
    std::filesystem::remove(ended, code);
  for (std::size_t i = 0; i < prepared.evaluations.size(); ++i)
    MOTLEY_RETURN_IF_ERROR(write_file_atomic(directory.evaluation(i),
                                             program::print_program(prepared.evaluations[i])));
  MOTLEY_RETURN_IF_ERROR(
      write_file_atomic(directory.job(), run::job_to_json(prepared.job).dump(2)));
  if (predicted != nullptr)
    return write_file_atomic(directory.predicted(), trace::print_trace(predicted->trace));
  std::filesystem::remove(directory.predicted(), code);
  return {};
}

/// Sets the number of steps from epochs, if given, and the length of the schedule.
Result<void> count_steps(std::int64_t samples, std::int64_t global_batch, TrainChoices& choices) {
  if (choices.epochs > 0 && samples < 0)
    return usage_error("cli.steps", choices.data.path +
                                        ": is a stream, whose epochs have no length; give --steps");
  if (choices.epochs > 0)
    choices.steps = static_cast<std::int64_t>(std::ceil(
        choices.epochs * static_cast<double>(samples) / static_cast<double>(global_batch)));
  if (choices.schedule.steps == 0) choices.schedule.steps = choices.steps;
  return run::verify_schedule(choices.schedule, choices.steps);
}

/// Adds the evaluation to the job. Its programs go into the run directory.
Result<std::vector<program::Program>> add_evaluation(PreparedRun& prepared) {
  EvaluationChoices& choices = *prepared.choices.evaluation;
  std::int64_t samples = choices.samples;
  if (!choices.data.path.empty()) {
    MOTLEY_ASSIGN(samples, check_trainable(*prepared.inputs, std::nullopt, choices.data));
  }
  if (samples < 0)
    return usage_error("data.stream", choices.data.path +
                                          ": is a stream; an evaluation wants a dataset with a "
                                          "length");
  MOTLEY_ASSIGN(PreparedEvaluation made,
                prepare_evaluation(*prepared.inputs, *prepared.planned, choices, samples));
  for (std::size_t i = 0; i < made.programs.size(); ++i)
    made.job.programs.push_back(prepared.directory.evaluation(i));
  prepared.job.evaluation = std::move(made.job);
  if (!prepared.adaptation) return std::move(made.programs);
  prepared.adaptation->complete = [inputs = prepared.inputs, choices,
                                   samples](Candidate& candidate) -> Result<void> {
    MOTLEY_ASSIGN(PreparedEvaluation own,
                  prepare_evaluation(*inputs, candidate.planned, choices, samples));
    candidate.evaluations = std::move(own.programs);
    return {};
  };
  Adaptation& adaptation = *prepared.adaptation;
  adaptation.candidates[static_cast<std::size_t>(adaptation.first)].evaluations = made.programs;
  return std::move(made.programs);
}

Watched watched_run(const PreparedRun& prepared) {
  Watched watched;
  for (const run::WorkerDevice& device : prepared.job.devices)
    watched.devices.push_back(device.name);
  watched.steps = prepared.choices.steps;
  watched.lr = prepared.planned->plan.recipe.optimizer.lr;
  watched.global_batch = prepared.planned->plan.global_batch;
  watched.predicted = prepared.predicted;
  return watched;
}

/// Reads the log of a continued run; a new run removes the old log.
Result<Log> earlier_log(const PreparedRun& prepared) {
  if (prepared.job.resume) return read_log(prepared.directory);
  std::error_code code;
  std::filesystem::remove(prepared.directory.log(), code);
  return Log{};
}

}  // namespace

Result<PreparedRun> prepare_run(const Inputs& inputs, const Planned& planned,
                                const Predicted* predicted, const TrainChoices& choices,
                                std::shared_ptr<Adaptation> adaptation) {
  PreparedRun prepared{.inputs = &inputs, .planned = &planned, .choices = choices};
  MOTLEY_ASSIGN(const std::int64_t samples,
                check_trainable(inputs, choices.shuffle, prepared.choices.data));
  const std::int64_t first_batch =
      adaptation && adaptation->batches ? adaptation->batches->first : planned.plan.global_batch;
  MOTLEY_RETURN_IF_ERROR(count_steps(samples, first_batch, prepared.choices));
  prepared.directory.path = std::filesystem::absolute(choices.run_dir).string();
  MOTLEY_ASSIGN(Claim claim, Claim::take(prepared.directory));
  prepared.claim = std::make_shared<const Claim>(std::move(claim));
  if (predicted != nullptr) {
    prepared.predicted = predicted->seconds();
    prepared.predicted_peaks = peaks_of(*predicted);
  }
  const bool is_elastic = adaptation && adaptation->replan;
  MOTLEY_RETURN_IF_ERROR(check_conditions(inputs, choices.conditions, is_elastic));
  prepared.adaptation = std::move(adaptation);
  if (is_elastic) prepared.adaptation->absences = choices.conditions.absences;
  if (prepared.adaptation) {
    MOTLEY_ASSIGN(const bool decides, limit_trials(prepared.choices.steps, *prepared.adaptation));
    if (!decides && !is_elastic) prepared.adaptation.reset();
  }
  prepared.job = make_job(prepared);
  if (choices.evaluation) {
    MOTLEY_ASSIGN(prepared.evaluations, add_evaluation(prepared));
  }
  MOTLEY_RETURN_IF_ERROR(write_run_directory(prepared, predicted));
  return prepared;
}

namespace {

Result<void> note_clocks(const run::Job& job, const Outside& outside) {
  const std::set<std::string> hosts = run::first_hosts(job);
  if (hosts.empty()) return {};
  MOTLEY_ASSIGN(const auto clocks, outside.workers.clocks_ahead(hosts));
  for (const auto& [host, ahead] : clocks)
    if (const std::string note = clock_note(host, ahead); !note.empty())
      outside.listener.note("note: " + note);
  return {};
}

}  // namespace

namespace {

/// Returns the address in the form of `motley join`.
std::string control_socket_address(const run::ControlSocket& control_socket, bool for_others) {
  const std::string host = for_others ? run::own_host_name() : "127.0.0.1";
  return fmt::format("{}@{}:{}", control_socket.word(), host, control_socket.port());
}

std::optional<job::Order> next_order(Adapting& adapting, Monitor& monitor) {
  std::optional<job::Order> order = adapting.next_order();
  if (const auto* add = order ? std::get_if<job::AddDevice>(&*order) : nullptr)
    monitor.know_rank(add->process, add->device.name);
  return order;
}

std::string find_checkpoint(const RunDirectory& directory) {
  std::error_code code;
  const auto target = std::filesystem::read_symlink(directory.latest_checkpoint(), code);
  return code ? "" : directory.path + "/checkpoint/" + target.filename().string();
}

/// Notes the checkpoint from which a failed run could continue.
void note_way_on(const PreparedRun& prepared, Listener& listener) {
  const std::string path = find_checkpoint(prepared.directory);
  if (path.empty() || !prepared.choices.resume) return;
  listener.note(path + " is there: the same command goes on from it");
}

Result<Measured> conclude(const PreparedRun& prepared, const run::JobOutcome& outcome,
                          Measured measured, Adapting* adapting, Renting* renting,
                          Listener& listener) {
  if (renting) measured.rented = renting->end();
  const bool has_ended = outcome.end != run::JobEnd::kFailed;
  if (adapting) MOTLEY_RETURN_IF_ERROR(adapting->end(has_ended && prepared.job.trace_steps > 0));
  if (!has_ended) {
    const Error& fault = adapting && adapting->fault() ? *adapting->fault() : outcome.error;
    (void)write_failure(prepared.directory, fault);  // a full disk must not hide the fault
    note_way_on(prepared, listener);
    return tl::make_unexpected(fault);
  }
  if (adapting) {
    measured.candidate = adapting->current_index();
    measured.membership = adapting->membership();
    run::Job job = prepared.job;  // the directory keeps the job of the last plan
    job.devices = adapting->current_devices();
    job.changes.reset();
    MOTLEY_RETURN_IF_ERROR(
        write_file_atomic(prepared.directory.job(), run::job_to_json(job).dump(2)));
  }
  measured.stopped = outcome.end == run::JobEnd::kStopped;
  if (std::string path = find_checkpoint(prepared.directory); !path.empty())
    measured.checkpoint = std::move(path);
  MOTLEY_RETURN_IF_ERROR(
      write_file_atomic(prepared.directory.summary(), summary_to_json(measured, prepared).dump(2)));
  return measured;
}

}  // namespace

Result<Measured> train(const PreparedRun& prepared, const Outside& outside) {
  MOTLEY_ASSIGN(Log earlier, earlier_log(prepared));
  MOTLEY_RETURN_IF_ERROR(write_start(prepared.directory, prepared.choices.arguments));
  MOTLEY_RETURN_IF_ERROR(note_clocks(prepared.job, outside));
  std::optional<Adapting> adapting;
  if (prepared.adaptation) {
    adapting.emplace(*prepared.adaptation, *prepared.inputs, prepared.directory, prepared.job,
                     outside.clock, outside.listener);
    MOTLEY_RETURN_IF_ERROR(adapting->open());
  }
  std::unique_ptr<run::ControlSocket> control_socket;
  std::unique_ptr<Renting> renting;
  if (prepared.adaptation && prepared.adaptation->replan) {
    const int port = prepared.adaptation->port;
    const bool for_others = port != 0 && !run::remote_hosts(prepared.job).empty();
    MOTLEY_ASSIGN(
        control_socket,
        run::ControlSocket::open(port, prepared.directory.control_socket(),
                                 for_others ? run::Callers::kAll : run::Callers::kThisMachine));
    outside.listener.note(
        fmt::format("devices may come (motley join {}) and leave (motley leave {} DEVICE)",
                    control_socket_address(*control_socket, for_others), prepared.choices.run_dir));
    if (prepared.choices.renting) {
      const Renting::Place place{prepared.directory, outside.clock, *adapting, *adapting,
                                 control_socket_address(*control_socket, for_others)};
      MOTLEY_ASSIGN(renting, Renting::start(*prepared.choices.renting, *prepared.inputs,
                                            prepared.job, prepared.predicted, place));
    }
  }
  Listener& listener = renting    ? static_cast<Listener&>(*renting)
                       : adapting ? static_cast<Listener&>(*adapting)
                                  : outside.listener;
  MOTLEY_ASSIGN(Notices notices,
                Notices::start(prepared.choices.notices, prepared.choices.notice_hook));
  if (renting) notices.tell([&](const run::Notice& notice) { renting->hear(notice); });
  Adapting* const elastic = control_socket ? &*adapting : nullptr;
  Monitor monitor(watched_run(prepared), outside.clock, listener);
  MOTLEY_RETURN_IF_ERROR(monitor.open(prepared.directory, std::move(earlier)));
  const run::JobOutcome outcome = outside.workers.train(
      prepared.job,
      [&](const run::WorkerEvent& event) {
        if (event.event == "signal") notices.note_signal(event.fields.value("signal", 0));
        if (adapting) adapting->on_event(event);
        if (renting) renting->on_event(event);
        const Wish wish = monitor.on_event(event);
        if (renting && renting->look() == Wish::kStop) return Wish::kStop;
        return notices.look(elastic, listener) == Wish::kStop ? Wish::kStop : wish;
      },
      [&]() -> std::optional<job::Order> {
        if (control_socket) answer_requests(*control_socket, *adapting);
        (void)notices.look(elastic, listener);  // its wish is heard with the next event
        if (renting) (void)renting->look();
        return adapting ? next_order(*adapting, monitor) : std::nullopt;
      },
      [&](int process, const Error& error) {
        return adapting && adapting->on_loss(process, error);
      });
  monitor.end();
  return conclude(prepared, outcome, monitor.result(), adapting ? &*adapting : nullptr,
                  renting.get(), outside.listener);
}

namespace {

Json evaluations_to_json(const Measured& measured) {
  Json list = Json::array();
  for (const auto& [step, each] : measured.evaluations)
    list.push_back(evaluation_to_json(step, each));
  return list;
}

Json best_to_json(const Measured& measured) {
  const auto found = measured.evaluations.find(measured.best_step);
  return found == measured.evaluations.end() ? Json(nullptr)
                                             : evaluation_to_json(found->first, found->second);
}

}  // namespace

LastPlan last_plan(const PreparedRun& prepared, const Measured& measured) {
  if (measured.candidate < 0)
    return {prepared.planned, prepared.predicted, prepared.predicted_peaks};
  const Candidate& last =
      prepared.adaptation->candidates[static_cast<std::size_t>(measured.candidate)];
  LastPlan plan{.planned = &last.planned};
  if (!last.predicted) return plan;
  plan.predicted = last.predicted->seconds();
  plan.predicted_peaks = peaks_of(*last.predicted);
  return plan;
}

std::vector<RankSummary> rank_summaries(const PreparedRun& prepared, const Measured& measured) {
  std::vector<RankSummary> ranks;
  for (const plan::Member& member : plan::members(last_plan(prepared, measured).planned->plan)) {
    RankSummary& rank = ranks.emplace_back();
    rank.device = prepared.inputs->cluster.device(member.device).name;
    rank.samples = member.samples;
    for (std::size_t r = 0; r < measured.devices.size(); ++r) {
      if (measured.devices[r] != rank.device) continue;
      if (r < measured.busy.size()) rank.busy = measured.busy[r];
      if (r < measured.peak_bytes.size()) rank.peak_bytes = measured.peak_bytes[r];
    }
  }
  return ranks;
}

Json summary_to_json(const Measured& measured, const PreparedRun& prepared) {
  Json devices = Json::array();
  const LastPlan last = last_plan(prepared, measured);
  for (const RankSummary& rank : rank_summaries(prepared, measured)) {
    Json device = {{"name", rank.device}, {"samples", rank.samples}};
    if (rank.busy) device["busy_share"] = *rank.busy;
    if (rank.peak_bytes) device["peak_bytes"] = *rank.peak_bytes;
    if (devices.size() < last.predicted_peaks.size())
      device["predicted_peak_bytes"] = last.predicted_peaks[devices.size()].value;
    devices.push_back(std::move(device));
  }
  Json json{{"steps", measured.losses.size()},
            {"losses", measured.losses},
            {"step_s_median", measured.step.value},
            {"predicted_step_s", last.predicted ? Json(last.predicted->value) : Json(nullptr)},
            {"checkpoint", measured.checkpoint},
            {"devices", std::move(devices)},
            {"lost_steps", measured.lost_steps},
            {"first_step", measured.first_step},
            {"stopped", measured.stopped},
            {"evaluations", evaluations_to_json(measured)},
            {"best", best_to_json(measured)},
            {"data_wait_share", measured.waiting.share},
            {"loaders_wanted", measured.waiting.wanted},
            {"membership", job::membership_to_json(measured.membership)},
            {"run_dir", prepared.choices.run_dir}};
  if (const auto& rented = measured.rented)
    json["rented"] = {
        {"paid", rented->paid}, {"spare_s", rented->spare.value}, {"asked", rented->asked}};
  return json;
}

}  // namespace motley::control
