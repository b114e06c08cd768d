#include "motley/control/planning/measuring.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "motley/base/statistics.h"
#include "motley/control/planning/placing.h"
#include "motley/control/planning/timing_work.h"
#include "motley/cost/links/collective_fit.h"
#include "motley/cost/measured/readings.h"
#include "motley/cost/measured/whole_step.h"
#include "motley/cost/profile_cost.h"
#include "motley/program/program_text.h"
#include "motley/run/launch/processors.h"
#include "motley/search/price/costs.h"
#include "motley/search/price/device_pools.h"
#include "motley/search/price/profile_batches.h"
#include "motley/synth/noise/gradient_squares.h"

namespace motley::control {
namespace {

using Setting = OperatorTask::Setting;

bool is_here(const cluster::Device& device) {
  return device.kind == "cpu" || device.kind == "cuda";
}

std::int64_t largest_batch(const Inputs& inputs) {
  return inputs.graph().sizes.empty() ? inputs.global_batch : inputs.graph().sizes[0].max;
}

std::map<std::string, cost::OperatorWork> works_of(const Inputs& inputs,
                                                   const std::vector<TimedProgram>& timed) {
  std::map<std::string, cost::OperatorWork> works;
  for (const TimedProgram& each : timed) {
    const program::DeviceProgram& program = each.device();
    const auto work = cost::instruction_work(program, inputs.graph());
    for (std::size_t i = 0; i < work.size(); ++i)
      works.emplace(program::cost_key(program, program.instructions[i]), work[i]);
  }
  return works;
}

std::vector<cost::OpEntry> one_round(const cost::DeviceKey& key,
                                     const std::vector<run::OpTime>& times,
                                     const std::map<std::string, cost::OperatorWork>& works) {
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
    if (const auto work = works.find(name); work != works.end()) entry.work = work->second;
    entries.push_back(std::move(entry));
  }
  return entries;
}

Result<std::vector<std::vector<cost::OpEntry>>> measure_operators(
    const Inputs& inputs, const std::vector<TaskPrograms>& wave, Workers& workers) {
  std::vector<TimingTask> all;
  std::vector<std::size_t> first;
  for (const TaskPrograms& each : wave) {
    first.push_back(all.size());
    const auto work = operator_work(inputs, each);
    all.insert(all.end(), work.begin(), work.end());
  }
  MOTLEY_ASSIGN(const auto times, workers.time_programs(all));
  std::vector<std::vector<cost::OpEntry>> entries;
  for (std::size_t i = 0; i < wave.size(); ++i)
    entries.push_back(
        one_round(wave[i].task.key, times[first[i]], works_of(inputs, wave[i].programs)));
  return entries;
}

/// Returns the devices' expected samples, and equal samples.
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
  if (count > 1) return {usual, equal};
  // Halts weigh less in short steps.
  return {usual, {std::clamp(inputs.global_batch / 4, batches.front(), batches.back())}};
}

std::vector<cost::OpEntry> pace_entries(const Inputs& inputs, const PaceWork& work,
                                        const std::vector<PaceTimes>& times,
                                        const std::string& torch) {
  std::vector<cost::OpEntry> entries;
  const auto add = [&](cost::OpEntry entry, const run::OpTime& time) {
    entry.median = time.median;
    entry.spread = time.spread;
    entry.samples = time.samples;
    entries.push_back(std::move(entry));
  };
  const std::string subject = profile_subject(inputs);
  for (std::size_t i = 0; i < work.devices.size(); ++i) {
    const auto key = cost::emulated_key(inputs.cluster, work.devices[i], torch);
    add(cost::step_entry(key, subject, work.samples[i]), times[i].step);
    add(cost::pause_entry(key, subject, work.samples[i]), times[i].pause);
  }
  return entries;
}

std::vector<PaceWork> pace_works(const std::vector<PaceTask>& tasks) {
  std::vector<PaceWork> works;
  for (const PaceTask& task : tasks)
    for (const auto& samples : task.samples) works.push_back({task.devices, samples});
  return works;
}

/// Stores the instructions' time of emulated devices' steps beside the steps.
Result<void> keep_computes(const Inputs& inputs, const std::string& torch,
                           cost::ProfileStore& store) {
  const std::string subject = profile_subject(inputs);
  MOTLEY_ASSIGN(const search::Costs costs, search::load_costs(*inputs.model, inputs.cluster, store,
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

/// Returns the key of exchanges over `transport`; GPUs beside a CPU exchange like the CPU.
std::string backend_of(const Inputs& inputs, const std::string& transport,
                       const std::vector<DeviceId>& group) {
  return transport == "nccl" ? cost::backend_key(inputs.cluster, group)
                             : cost::host_backend_key(inputs.cluster);
}

/// Returns how much exchanges slow down compute, by device key, where they overlapped.
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
      entries.push_back({key, backend_of(inputs, times.backend, group),
                         cost::route_key(inputs.cluster, group), static_cast<int>(group.size()),
                         *factor, static_cast<std::int64_t>(of_key.size())});
  return entries;
}

struct GroupEntries {
  std::vector<cost::CollectiveEntry> collectives;
  std::vector<cost::InterferenceEntry> interference;
};

/// Makes a timing job with the devices at full speed and their real or emulated links.
run::Job exchange_job(const Inputs& inputs, const std::vector<DeviceId>& group) {
  const auto route = emulated_route(inputs.cluster, group);
  run::Job job;
  job.transport = inputs.cluster.transport;
  for (const DeviceId id : group) job.devices.push_back(full_device(inputs, id, route));
  return job;
}

/// Times exchanges of the group and of its first 2, 3, ... devices with the same route, and compute
/// beside them.
Result<GroupEntries> measure_group(const Inputs& inputs, const std::vector<DeviceId>& group,
                                   const std::string& torch, Workers& workers) {
  const std::string route_key = cost::route_key(inputs.cluster, group);
  MOTLEY_ASSIGN(const run::MeasuredGroup times,
                workers.time_exchanges(exchange_job(inputs, group)));
  for (const run::OverlapTime& time : times.overlaps)
    if (time.rank < 0 || static_cast<std::size_t>(time.rank) >= group.size())
      return runtime_error("profile.overlap", fmt::format("motley-worker: found rank {} of {}",
                                                          time.rank, group.size()));
  GroupEntries entries;
  entries.interference = find_interference(inputs, group, times, torch);
  for (const run::CollectiveTime& time : times.collectives) {
    const std::vector<DeviceId> members(group.begin(), group.begin() + time.ranks);
    if (cost::route_key(inputs.cluster, members) != route_key) continue;
    entries.collectives.push_back({time.op, backend_of(inputs, time.backend, members), route_key,
                                   time.ranks, time.bytes, time.median, time.spread, time.samples});
  }
  return entries;
}

class Measuring {
 public:
  Measuring(const Inputs& inputs, const std::string& torch, cost::ProfileStore& store,
            const Outside& outside)
      : inputs_(inputs), torch_(torch), store_(store), outside_(outside) {}

  Result<void> time_all(const MeasuringTasks& tasks, int rounds) {
    tell(tasks);
    MOTLEY_ASSIGN(const auto timed, with_programs(tasks));
    const auto operators = side_by_side(inputs_, timed);
    const auto paces = side_by_side(inputs_, pace_works(tasks.paces));
    tell_waves("operators", operators);
    tell_waves("whole steps", paces);
    for (int round = 0; round < rounds; ++round) {
      for (const auto& wave : operators)
        MOTLEY_RETURN_IF_ERROR(time_operators(wave, tasks.batches));
      for (const auto& wave : paces) MOTLEY_RETURN_IF_ERROR(time_whole_steps(wave));
    }
    for (const auto& group : tasks.groups) MOTLEY_RETURN_IF_ERROR(time_group(group));
    return {};
  }

  KeptTimes kept() const {
    return {static_cast<std::int64_t>(spreads_.size()), upper_median(spreads_)};
  }

 private:
  void tell(const MeasuringTasks& tasks) {
    for (const OperatorTask& task : tasks.operators)
      outside_.listener.note(fmt::format(
          "profile: {} operators on {} with {} thread{}, batches {} to {}",
          inputs_.graph().ops.size(), task.key.kind, task.key.threads,
          task.key.threads > 1 ? "s" : "", tasks.batches.front(), tasks.batches.back()));
    for (const PaceTask& task : tasks.paces)
      outside_.listener.note(
          fmt::format("profile: whole steps of {} devices at once", task.devices.size()));
  }

  /// Notes when several machines work concurrently.
  template <typename Item>
  void tell_waves(const char* what, const std::vector<std::vector<Item>>& waves) {
    if (waves.empty() || waves[0].size() < 2) return;
    std::vector<std::string> hosts;
    for (const Item& each : waves[0]) {
      const std::string host = machine_of(inputs_, first_device(each));
      hosts.push_back(host.empty() ? "this machine" : host);
    }
    outside_.listener.note(
        fmt::format("profile: {} on {} at the same time", what, fmt::join(hosts, ", ")));
  }

  Result<std::vector<TaskPrograms>> with_programs(const MeasuringTasks& tasks) const {
    std::map<int, std::vector<TimedProgram>> by_ranks;
    std::vector<TaskPrograms> timed;
    for (const OperatorTask& task : tasks.operators) {
      const int ranks = ranks_of(inputs_, task.setting);
      if (!by_ranks.contains(ranks)) {
        MOTLEY_ASSIGN(by_ranks[ranks], reference_programs(inputs_, tasks.batches, ranks));
        // Operators that do not depend on samples are timed once.
        const TimedProgram first = by_ranks[ranks].front();
        by_ranks[ranks].push_back(
            {std::make_shared<const program::Program>(synth::with_timed_squares(*first.program)),
             first.rank});
      }
      timed.push_back({task, by_ranks[ranks]});
    }
    return timed;
  }

  Result<void> time_operators(const std::vector<TaskPrograms>& wave,
                              const std::vector<std::int64_t>& batches) {
    MOTLEY_ASSIGN(const auto entries, measure_operators(inputs_, wave, outside_.workers));
    for (std::size_t i = 0; i < wave.size(); ++i) {
      MOTLEY_RETURN_IF_ERROR(keep(entries[i]));
      MOTLEY_RETURN_IF_ERROR(
          store_.put_batches(profile_subject(inputs_), wave[i].task.key, batches));
    }
    return {};
  }

  Result<void> time_whole_steps(const std::vector<PaceWork>& wave) {
    MOTLEY_ASSIGN(const auto times, time_paces(inputs_, wave, outside_.workers));
    for (std::size_t i = 0; i < wave.size(); ++i)
      MOTLEY_RETURN_IF_ERROR(keep(pace_entries(inputs_, wave[i], times[i], torch_)));
    return {};
  }

  Result<void> time_group(const std::vector<DeviceId>& group) {
    outside_.listener.note(fmt::format("profile: exchanges among {} devices ({})", group.size(),
                                       cost::route_key(inputs_.cluster, group)));
    MOTLEY_ASSIGN(const auto entries, measure_group(inputs_, group, torch_, outside_.workers));
    MOTLEY_RETURN_IF_ERROR(store_.put(entries.interference));
    return keep(entries.collectives);
  }

  template <typename Entry>
  Result<void> keep(const std::vector<Entry>& entries) {
    for (const Entry& entry : entries) spreads_.push_back(entry.spread);
    return store_.put(entries);
  }

  const Inputs& inputs_;
  const std::string& torch_;
  cost::ProfileStore& store_;
  const Outside& outside_;
  std::vector<double> spreads_;
};

/// Finds a plan's unmeasured operators, by device key, on the first device of each key.
Result<std::vector<TaskPrograms>> find_unmeasured(
    const Inputs& inputs, const std::shared_ptr<const program::Program>& program,
    const std::string& torch, const search::Costs& costs) {
  std::map<cost::DeviceKey, TaskPrograms> missing;
  for (std::size_t rank = 0; rank < program->devices.size(); ++rank) {
    const program::DeviceProgram& device = program->devices[rank];
    MOTLEY_ASSIGN(const DeviceId id, cluster::find_device(inputs.cluster, device.device));
    if (!is_here(inputs.cluster.device(id))) continue;
    const bool is_shared = program::is_in_group(device);
    const cost::DeviceKey key = is_shared ? cost::shared_key(inputs.cluster, id, torch)
                                          : cost::device_key(inputs.cluster.device(id), torch);
    const auto& known = costs.devices.at(device.device).of(device).measured;
    if (!known) continue;
    const auto times = known->times(device);
    if (std::all_of(times.begin(), times.end(), [](const auto& time) { return time.has_value(); }))
      continue;
    TaskPrograms& of_key = missing[key];
    if (of_key.programs.empty())
      of_key.task = {id, is_shared ? Setting::kShared : Setting::kAlone, key};
    of_key.programs.push_back({program, static_cast<int>(rank)});
  }
  std::vector<TaskPrograms> list;
  for (auto& [key, of_key] : missing) list.push_back(std::move(of_key));
  return list;
}

}  // namespace

Result<MeasuringTasks> find_tasks(const Inputs& inputs, const std::string& torch) {
  MeasuringTasks tasks;
  tasks.batches = search::profile_batches(inputs.global_batch, largest_batch(inputs));
  std::set<std::pair<cost::DeviceKey, int>> done;  // ranks of the programs
  for (const Setting setting : {Setting::kAlone, Setting::kShared})
    for (const DeviceId id : inputs.devices) {
      const cluster::Device& device = inputs.cluster.device(id);
      const cost::DeviceKey key = setting == Setting::kShared
                                      ? cost::shared_key(inputs.cluster, id, torch)
                                      : cost::device_key(device, torch);
      if (!done.insert({key, ranks_of(inputs, setting)}).second) continue;
      if (!is_here(device))
        return usage_error("profile.kind",
                           fmt::format("device {} of kind {} is not on this machine and cannot be "
                                       "measured here; leave it out with --exclude {}",
                                       device.name, device.kind, device.name));
      tasks.operators.push_back({id, setting, key});
    }
  std::set<cost::DeviceKey> paced;
  for (const DeviceId id : inputs.devices) {
    if (!cost::has_pace(inputs.cluster, id) ||
        paced.contains(cost::emulated_key(inputs.cluster, id, torch)))
      continue;
    PaceTask task{.devices = {id}};
    for (const DeviceId other : cost::neighbours(inputs.cluster, id)) task.devices.push_back(other);
    task.samples = paced_samples(inputs, task.devices, tasks.batches);
    for (const DeviceId each : task.devices)
      paced.insert(cost::emulated_key(inputs.cluster, each, torch));
    tasks.paces.push_back(std::move(task));
  }
  tasks.groups = search::groups_to_measure(inputs.cluster, inputs.devices);
  return tasks;
}

Result<KeptTimes> measure(const Inputs& inputs, int rounds, cost::ProfileStore& store,
                          const Outside& outside) {
  MOTLEY_ASSIGN(std::string torch, outside.workers.torch_version());
  torch = engine_version(inputs, torch);
  MOTLEY_ASSIGN(const MeasuringTasks tasks, find_tasks(inputs, torch));
  Measuring measuring(inputs, torch, store, outside);
  MOTLEY_RETURN_IF_ERROR(measuring.time_all(tasks, rounds));
  MOTLEY_RETURN_IF_ERROR(keep_computes(inputs, torch, store));
  return measuring.kept();
}

bool may_measure(const Inputs& inputs, const plan::Plan& plan) {
  const std::vector<plan::Member> members = plan::members(plan);
  return std::any_of(members.begin(), members.end(), [&](const plan::Member& member) {
    return is_here(inputs.cluster.device(member.device));
  });
}

Result<Learned> measure_plan(const Inputs& inputs,
                             const std::shared_ptr<const program::Program>& program,
                             const search::Costs& costs, int rounds, cost::ProfileStore& store,
                             const Outside& outside) {
  MOTLEY_ASSIGN(std::string torch, outside.workers.torch_version());
  torch = engine_version(inputs, torch);
  MOTLEY_ASSIGN(const auto unmeasured, find_unmeasured(inputs, program, torch, costs));
  for (const TaskPrograms& work : unmeasured)
    outside.listener.note(fmt::format("profile: parts of operators as the plan splits them, on {}",
                                      work.task.key.kind));
  for (const auto& wave : side_by_side(inputs, unmeasured))
    for (int round = 0; round < rounds; ++round) {
      MOTLEY_ASSIGN(const auto entries, measure_operators(inputs, wave, outside.workers));
      for (const auto& each : entries) MOTLEY_RETURN_IF_ERROR(store.put(each));
    }
  return unmeasured.empty() ? Learned::kNothing : Learned::kSomething;
}

Result<std::vector<std::string>> find_drifted(const Inputs& inputs, const std::string& torch,
                                              const cost::ProfileStore& store) {
  const std::string engine = engine_version(inputs, torch);
  std::set<cost::DeviceKey> keys;
  for (const DeviceId id : inputs.devices) {
    keys.insert(cost::device_key(inputs.cluster.device(id), engine));
    keys.insert(cost::shared_key(inputs.cluster, id, engine));
    keys.insert(cost::emulated_key(inputs.cluster, id, engine));
  }
  std::vector<std::string> drifted;
  for (const cost::DeviceKey& key : keys) {
    MOTLEY_ASSIGN(const auto entries, store.ops(key));
    for (const cost::OpEntry& entry : entries)
      if (entry.has_drifted) drifted.push_back(entry.key + " on " + key.kind);
  }
  return drifted;
}

}  // namespace motley::control
