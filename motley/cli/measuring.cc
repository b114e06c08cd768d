#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "motley/base/file.h"
#include "motley/base/statistics.h"
#include "motley/base/text.h"
#include "motley/cli/planning.h"
#include "motley/cli/torch_version.h"
#include "motley/cost/links/collective_fit.h"
#include "motley/cost/measured/readings.h"
#include "motley/cost/measured/whole_step.h"
#include "motley/cost/profile_cost.h"
#include "motley/program/program_text.h"
#include "motley/run/launcher.h"
#include "motley/run/measure.h"
#include "motley/run/processors.h"
#include "motley/search/price/costs.h"
#include "motley/search/price/device_pools.h"
#include "motley/search/price/profile_batches.h"

namespace motley::cli {
namespace {

constexpr double kSecondsPerProgram = 0.4;  // in all rounds
constexpr double kSecondsOfPace = 4;
constexpr double kProfileTimeout = 1800;  // seconds; of one device kind

/// A directory that is gone when the object is.
class ScratchDirectory {
 public:
  ScratchDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "motley-XXXXXX").string();
    if (::mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~ScratchDirectory() {
    std::error_code code;
    if (!path_.empty()) std::filesystem::remove_all(path_, code);
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// A device as it is measured: alone, or in a step that it shares with the others.
struct Setting {
  DeviceId device;
  bool is_shared;
};

/// The program of `samples` samples alone, or as one of two equal devices: what is timed.
Result<program::Program> reference_program(const Inputs& inputs, std::int64_t samples, int ranks) {
  program::Program program;
  program.model_hash = inputs.model.hash;
  program.global_batch = samples * ranks;
  if (ranks > 1) program.groups.push_back({{Rank(0), Rank(1)}});
  for (int rank = 0; rank < ranks; ++rank) {
    const synth::Placement placement{.device = fmt::format("profile:{}", rank),
                                     .samples = samples,
                                     .first_sample = rank * samples,
                                     .global_batch = samples * ranks,
                                     .ranks = ranks};
    MOTLEY_ASSIGN(auto device, synth::lower_device(inputs.model.graph, placement, inputs.lowering));
    program.devices.push_back(std::move(device));
  }
  return program;
}

/// A rank of a program that is timed.
struct Timed {
  std::shared_ptr<const program::Program> program;
  int rank = 0;
  const program::DeviceProgram& device() const {
    return program->devices[static_cast<std::size_t>(rank)];
  }
};

Result<std::vector<Timed>> reference_programs(const Inputs& inputs,
                                              const std::vector<std::int64_t>& batches, int ranks) {
  std::vector<Timed> timed;
  for (const std::int64_t batch : batches) {
    MOTLEY_ASSIGN(auto program, reference_program(inputs, batch, ranks));
    timed.push_back({std::make_shared<const program::Program>(std::move(program)), 0});
  }
  return timed;
}

/// Work of each operator of a timed program, by key.
using Works = std::map<std::string, cost::OperatorWork>;

Result<run::ProfileJob> write_profile_job(const Inputs& inputs, const cluster::Device& device,
                                          const std::vector<Timed>& timed,
                                          const std::string& directory, Works& works) {
  run::ProfileJob job;
  job.seconds_per_program = kSecondsPerProgram;
  job.device = {.name = device.name,
                .kind = device.kind,
                .local_index = device.local_index,
                .threads = device.threads};
  for (const Timed& each : timed) {
    const program::DeviceProgram& program = each.device();
    const auto work = cost::instruction_work(program, inputs.model.graph);
    for (std::size_t i = 0; i < work.size(); ++i)
      works.emplace(program::cost_key(program, program.instructions[i]), work[i]);
    job.programs.push_back(
        fmt::format("{}/{}-{}.txt", directory, device.name, job.programs.size()));
    job.ranks.push_back(each.rank);
    MOTLEY_RETURN_IF_ERROR(
        write_file_atomic(job.programs.back(), program::print_program(*each.program)));
  }
  return job;
}

/// Runs the jobs side by side, each until all have their times.
Result<std::vector<std::vector<run::OpTime>>> run_profiles(std::vector<run::ProfileJob> jobs,
                                                           const ScratchDirectory& scratch,
                                                           const Context& context) {
  std::vector<std::vector<std::string>> arguments;
  for (run::ProfileJob& job : jobs) {
    job.linger = jobs.size() > 1;
    const std::string path = fmt::format("{}/profile-{}.json", scratch.path(), arguments.size());
    MOTLEY_RETURN_IF_ERROR(write_file_atomic(path, run::profile_job_to_json(job).dump()));
    arguments.push_back({"profile", path});
  }
  MOTLEY_ASSIGN(const auto lines,
                run::run_side_by_side(context.worker, arguments, kProfileTimeout));
  std::vector<std::vector<run::OpTime>> times;
  for (const std::string& line : lines) {
    MOTLEY_ASSIGN(const Json json, parse_json(line, "motley-worker profile"));
    MOTLEY_ASSIGN(auto each, run::op_times_from_json(json, "motley-worker profile"));
    times.push_back(std::move(each));
  }
  return times;
}

/// One entry an operator: some are in the programs of several batches.
std::vector<cost::OpEntry> one_round(const cost::DeviceKey& key,
                                     const std::vector<run::OpTime>& times, Works& works) {
  std::map<std::string, std::vector<cost::Reading>> readings;
  std::map<std::string, Bytes> scratch;
  for (const run::OpTime& time : times) {
    readings[time.key].push_back({time.median.value, time.spread, time.samples});
    scratch[time.key] = std::max(scratch[time.key], time.scratch);
  }
  std::vector<cost::OpEntry> entries;
  for (const auto& [name, of_operator] : readings) {
    cost::OpEntry entry{key, name, Seconds(cost::merge_readings(of_operator).seconds)};
    for (const cost::Reading& reading : of_operator) {
      entry.spread = std::max(entry.spread, reading.spread);
      entry.samples += reading.samples;
    }
    entry.scratch = scratch[name];
    entry.work = works[name];
    entries.push_back(std::move(entry));
  }
  return entries;
}

/// Times of operators. In the shared setting neighbours do the same work at the same time, as many
/// as there are processors for.
Result<std::vector<cost::OpEntry>> measure_device(const Inputs& inputs, const Setting& setting,
                                                  const cost::DeviceKey& key,
                                                  const std::vector<Timed>& timed,
                                                  const Context& context) {
  const ScratchDirectory scratch;
  const cluster::Device& device = inputs.cluster.device(setting.device);
  const std::size_t beside =
      setting.is_shared ? cost::neighbours(inputs.cluster, setting.device).size() : 0;
  Works works;
  MOTLEY_ASSIGN(run::ProfileJob job,
                write_profile_job(inputs, device, timed, scratch.path(), works));
  const std::vector<int> processors = run::usable_processors();
  const std::size_t workers = std::clamp<std::size_t>(processors.size(), 1, beside + 1);
  std::vector<run::ProfileJob> jobs;
  for (std::size_t i = 0; i < workers; ++i) {
    if (workers > 1 && device.threads == 1) job.device.processor = processors[i];
    jobs.push_back(job);
  }
  MOTLEY_ASSIGN(const auto times, run_profiles(std::move(jobs), scratch, context));
  return one_round(key, times[0], works);
}

/// What emulated devices are timed with together: about their parts of the batch, and equal parts,
/// which give the slow ones more (their pauses weigh less then).
std::set<std::vector<std::int64_t>> paced_samples(const Inputs& inputs,
                                                  const std::vector<DeviceId>& devices,
                                                  const std::vector<std::int64_t>& batches) {
  std::vector<std::int64_t> usual, equal;
  const auto count = static_cast<std::int64_t>(devices.size());
  for (const DeviceId id : devices) {
    usual.push_back(std::clamp(cost::usual_samples(inputs.cluster, id, inputs.global_batch),
                               batches.front(), batches.back()));
    equal.push_back(std::clamp(inputs.global_batch / count, batches.front(), batches.back()));
  }
  return {usual, equal};
}

/// Times of whole steps of emulated devices that share a machine, all at work at once as they are
/// emulated: what they cost each other, and a machine that is slow for a while, is the same for all
/// of them. `samples`: of each device.
Result<std::vector<cost::OpEntry>> measure_paces(const Inputs& inputs,
                                                 const std::vector<DeviceId>& devices,
                                                 const std::vector<std::int64_t>& samples,
                                                 const std::string& subject,
                                                 const std::string& torch, const Context& context) {
  const ScratchDirectory scratch;
  std::vector<double> speeds;
  for (const DeviceId id : devices) speeds.push_back(inputs.cluster.device(id).speed);
  const std::vector<int> places = run::place_on_processors(speeds, run::usable_processors());
  std::vector<run::ProfileJob> jobs;
  std::vector<cost::OpEntry> entries;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const cluster::Device& device = inputs.cluster.device(devices[i]);
    Works works;
    MOTLEY_ASSIGN(const auto timed, reference_programs(inputs, {samples[i]}, 2));
    MOTLEY_ASSIGN(run::ProfileJob job,
                  write_profile_job(inputs, device, timed, scratch.path(), works));
    job.whole_steps = true;
    job.seconds_per_program = kSecondsOfPace;
    job.device.speed = device.speed;
    if (!places.empty()) job.device.processor = places[i];
    jobs.push_back(std::move(job));
    entries.push_back(cost::step_entry(cost::emulated_key(inputs.cluster, devices[i], torch),
                                       subject, samples[i]));
  }
  MOTLEY_ASSIGN(const auto times, run_profiles(std::move(jobs), scratch, context));
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (times[i].size() != 1)
      return runtime_error("profile.pace", "motley-worker profile: wanted the time of one step");
    entries[i].median = times[i][0].median;
    entries[i].spread = times[i][0].spread;
    entries[i].samples = times[i][0].samples;
  }
  return entries;
}

/// Puts what emulated devices' steps take by their instructions beside the steps.
Result<void> keep_computes(const Inputs& inputs, const std::string& subject,
                           const std::string& torch, cost::ProfileStore& store) {
  MOTLEY_ASSIGN(const search::Costs costs, search::load_costs(inputs.model, inputs.cluster, store,
                                                              {.lowering = inputs.lowering,
                                                               .torch = torch,
                                                               .global_batch = inputs.global_batch,
                                                               .devices = inputs.devices}));
  std::vector<cost::OpEntry> entries;
  for (const DeviceId id : inputs.devices) {
    if (!cost::has_pace(inputs.cluster, id)) continue;
    const cost::DeviceKey key = cost::emulated_key(inputs.cluster, id, torch);
    const auto& table = *costs.full_speed.at(inputs.cluster.device(id).name);
    MOTLEY_ASSIGN(const auto steps, cost::find_steps(store, key, subject));
    for (const cost::StepTime& step : steps) {
      entries.push_back(cost::compute_entry(key, subject, step.samples));
      entries.back().median = table.total(static_cast<double>(step.samples));
      entries.back().samples = 1;
    }
  }
  return store.put(entries);
}

/// What compute beside the group's exchanges says of its devices; those of one key together. One
/// that never computed beside an exchange has no entry.
std::vector<cost::InterferenceEntry> find_interference(const Inputs& inputs,
                                                       const std::vector<DeviceId>& group,
                                                       const run::MeasuredGroup& times,
                                                       const std::string& torch) {
  std::map<cost::DeviceKey, std::vector<cost::OverlapSample>> samples;
  for (const run::OverlapTime& time : times.overlaps) {
    const DeviceId id = group[static_cast<std::size_t>(time.rank)];
    samples[cost::device_key(inputs.cluster.device(id), torch)].push_back(
        {time.alone, time.together, time.overlap});
  }
  std::vector<cost::InterferenceEntry> entries;
  for (const auto& [key, of_key] : samples)
    if (const auto factor = cost::fit_interference(of_key))
      entries.push_back({key, times.backend, cost::route_key(inputs.cluster, group),
                         static_cast<int>(group.size()), *factor,
                         static_cast<std::int64_t>(of_key.size())});
  return entries;
}

/// What is measured of a group of devices.
struct GroupEntries {
  std::vector<cost::CollectiveEntry> collectives;
  std::vector<cost::InterferenceEntry> interference;
};

/// Times the exchanges of a group and of its first 2, 3, ... devices that are joined alike, and
/// compute beside those of the whole group.
Result<GroupEntries> measure_group(const Inputs& inputs, std::vector<DeviceId> group,
                                   const std::string& torch, const Context& context) {
  const ScratchDirectory scratch;
  const std::string route_key = cost::route_key(inputs.cluster, group);
  const auto route = cluster::group_route(inputs.cluster, group);
  run::Job job;
  job.run_dir = scratch.path();
  job.transport = inputs.cluster.transport;
  for (const DeviceId id : group) {
    const cluster::Device& device = inputs.cluster.device(id);
    run::WorkerDevice worker{.name = device.name,
                             .kind = device.kind,
                             .local_index = device.local_index,
                             .threads = device.threads};
    if (route) {
      worker.rate = route->bandwidth.value;
      worker.latency = route->latency.value;
    }
    job.devices.push_back(std::move(worker));
  }
  const std::string job_path = scratch.path() + "/job.json";
  MOTLEY_RETURN_IF_ERROR(write_file_atomic(job_path, run::job_to_json(job).dump()));
  Result<run::MeasuredGroup> times = run::MeasuredGroup{};
  const run::JobOutcome outcome =
      run::launch(job, {.worker = context.worker, .job_path = job_path, .verb = "collectives"},
                  [&](const run::WorkerEvent& event) {
                    if (event.event == "collectives")
                      times = run::measured_group_from_json(event.fields, "motley-worker");
                  });
  if (outcome.end == run::JobEnd::kFailed) return tl::make_unexpected(outcome.error);
  if (!times) return tl::make_unexpected(times.error());
  for (const run::OverlapTime& time : times->overlaps)
    if (time.rank < 0 || static_cast<std::size_t>(time.rank) >= group.size())
      return runtime_error("profile.overlap", fmt::format("motley-worker: found rank {} of {}",
                                                          time.rank, group.size()));
  GroupEntries entries;
  entries.interference = find_interference(inputs, group, *times, torch);
  for (const run::CollectiveTime& time : times->collectives) {
    const std::vector<DeviceId> members(group.begin(), group.begin() + time.ranks);
    if (cost::route_key(inputs.cluster, members) != route_key) continue;
    entries.collectives.push_back({time.op, time.backend, route_key, time.ranks, time.bytes,
                                   time.median, time.spread, time.samples});
  }
  return entries;
}

}  // namespace

Result<bool> measure_plan(const Inputs& inputs, const plan::Plan& plan, const std::string& path,
                          const Context& context) {
  MOTLEY_ASSIGN(const std::string torch, worker_version(context));
  MOTLEY_ASSIGN(cost::ProfileStore store, cost::ProfileStore::open(path));
  MOTLEY_ASSIGN(program::Program lowered, synth::lower(inputs.model.graph, plan, inputs.cluster));
  const auto program = std::make_shared<const program::Program>(std::move(lowered));
  std::map<cost::DeviceKey, std::pair<DeviceId, std::vector<Timed>>> missing;
  for (std::size_t rank = 0; rank < program->devices.size(); ++rank) {
    const program::DeviceProgram& device = program->devices[rank];
    MOTLEY_ASSIGN(const DeviceId id, cluster::find_device(inputs.cluster, device.device));
    const std::string& kind = inputs.cluster.device(id).kind;
    if (kind != "cpu" && kind != "cuda") continue;
    const cost::DeviceKey key = cost::shared_key(inputs.cluster, id, torch);
    MOTLEY_ASSIGN(const auto known, cost::MeasuredTimes::load(store, key));
    const auto times = known.times(device);
    if (std::all_of(times.begin(), times.end(), [](const auto& time) { return time.has_value(); }))
      continue;
    auto& [first, timed] = missing[key];
    if (timed.empty()) first = id;
    timed.push_back({program, static_cast<int>(rank)});
  }
  for (const auto& [key, what] : missing) {
    const auto& [id, timed] = what;
    context.note(
        fmt::format("profile: parts of operators as the plan splits them, on {}", key.kind));
    MOTLEY_ASSIGN(const auto entries, measure_device(inputs, {id, true}, key, timed, context));
    MOTLEY_RETURN_IF_ERROR(store.put(entries));
  }
  return !missing.empty();
}

Result<MeasureSummary> measure(const Inputs& inputs, cost::ProfileStore& store,
                               const Context& context) {
  MOTLEY_ASSIGN(const std::string torch, worker_version(context));
  const std::int64_t largest =
      inputs.model.graph.sizes.empty() ? inputs.global_batch : inputs.model.graph.sizes[0].max;
  const auto batches = search::profile_batches(inputs.global_batch, largest);
  const std::string subject = search::profile_subject(inputs.model.hash, inputs.lowering);
  std::vector<double> spreads;
  std::set<std::pair<cost::DeviceKey, bool>> done;
  std::vector<Setting> settings;
  for (const bool is_shared : {false, true})
    for (const DeviceId id : inputs.devices) settings.push_back({id, is_shared});
  for (const auto& [id, is_shared] : settings) {
    const cluster::Device& device = inputs.cluster.device(id);
    const cost::DeviceKey key =
        is_shared ? cost::shared_key(inputs.cluster, id, torch) : cost::device_key(device, torch);
    if (!done.insert({key, is_shared}).second) continue;
    if (device.kind != "cpu" && device.kind != "cuda")
      return usage_error("profile.kind",
                         fmt::format("device {} of kind {} is not on this machine and cannot be "
                                     "measured here; leave it out with --exclude {}",
                                     device.name, device.kind, device.name));
    context.note(fmt::format("profile: {} operators on {} with {} thread{}, batches {} to {}",
                             inputs.model.graph.ops.size(), key.kind, key.threads,
                             key.threads > 1 ? "s" : "", batches.front(), batches.back()));
    MOTLEY_ASSIGN(const auto timed, reference_programs(inputs, batches, is_shared ? 2 : 1));
    MOTLEY_ASSIGN(const auto entries, measure_device(inputs, {id, is_shared}, key, timed, context));
    MOTLEY_RETURN_IF_ERROR(store.put(entries));
    MOTLEY_RETURN_IF_ERROR(store.put_batches(subject, key, batches));
    for (const cost::OpEntry& entry : entries) spreads.push_back(entry.spread);
  }
  for (const DeviceId id : inputs.devices) {
    if (!cost::has_pace(inputs.cluster, id) ||
        done.contains({cost::emulated_key(inputs.cluster, id, torch), true}))
      continue;
    std::vector<DeviceId> together = {id};
    for (const DeviceId other : cost::neighbours(inputs.cluster, id)) together.push_back(other);
    context.note(fmt::format("profile: whole steps of {} devices at once", together.size()));
    for (const auto& samples : paced_samples(inputs, together, batches)) {
      MOTLEY_ASSIGN(const auto entries,
                    measure_paces(inputs, together, samples, subject, torch, context));
      MOTLEY_RETURN_IF_ERROR(store.put(entries));
      for (const cost::OpEntry& entry : entries) {
        done.insert({entry.device, true});
        spreads.push_back(entry.spread);
      }
    }
  }
  for (const auto& group : search::groups_to_measure(inputs.cluster, inputs.devices)) {
    context.note(fmt::format("profile: exchanges among {} devices ({})", group.size(),
                             cost::route_key(inputs.cluster, group)));
    MOTLEY_ASSIGN(const auto entries, measure_group(inputs, group, torch, context));
    MOTLEY_RETURN_IF_ERROR(store.put(entries.collectives));
    MOTLEY_RETURN_IF_ERROR(store.put(entries.interference));
    for (const cost::CollectiveEntry& entry : entries.collectives) spreads.push_back(entry.spread);
  }
  MOTLEY_RETURN_IF_ERROR(keep_computes(inputs, subject, torch, store));
  return MeasureSummary{static_cast<std::int64_t>(spreads.size()), upper_median(spreads)};
}

}  // namespace motley::cli
