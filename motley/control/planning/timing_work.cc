#include "motley/control/planning/timing_work.h"

#include <algorithm>

#include "motley/control/planning/placing.h"
#include "motley/cost/device_keys.h"
#include "motley/run/launch/processors.h"

namespace motley::control {
namespace {

/// Time of one round.
constexpr Seconds kPerProgram{0.4 / 3};
constexpr Seconds kPerPace{4.0 / 3};

/// Returns the timed program: `samples` samples on one device, or on one of `ranks` equal devices.
Result<program::Program> reference_program(const Inputs& inputs, std::int64_t samples, int ranks) {
  MOTLEY_ASSIGN(program::Program program,
                synth::lower_equal(inputs.graph(), {samples, ranks}, inputs.lowering));
  program.model_hash = inputs.model->hash;
  return program;
}

Result<std::vector<TimingTask>> pace_work(const Inputs& inputs, const PaceWork& work) {
  std::vector<double> speeds;
  for (const DeviceId id : work.devices) speeds.push_back(inputs.cluster.device(id).speed);
  const std::vector<int> places = run::place_on_processors(speeds, run::usable_processors());
  std::vector<TimingTask> tasks;
  for (std::size_t i = 0; i < work.devices.size(); ++i) {
    MOTLEY_ASSIGN(auto timed, reference_programs(inputs, {work.samples[i]},
                                                 ranks_of(inputs, OperatorTask::Setting::kShared)));
    TimingTask task{.what = TimingTask::What::kWholeSteps,
                    .device = full_device(inputs, work.devices[i]),
                    .programs = std::move(timed),
                    .per_program = kPerPace};
    task.device.speed = speeds[i];
    if (!places.empty() && task.device.host.empty()) task.device.processor = places[i];
    tasks.push_back(std::move(task));
  }
  return tasks;
}

}  // namespace

int ranks_of(const Inputs& inputs, OperatorTask::Setting setting) {
  return setting == OperatorTask::Setting::kAlone
             ? 1
             : synth::replicas_that_share(inputs.graph(), inputs.lowering.batch_norm);
}

Result<std::vector<TimedProgram>> reference_programs(const Inputs& inputs,
                                                     const std::vector<std::int64_t>& batches,
                                                     int ranks) {
  std::vector<TimedProgram> timed;
  for (const std::int64_t batch : batches) {
    MOTLEY_ASSIGN(auto program, reference_program(inputs, batch, ranks));
    timed.push_back({std::make_shared<const program::Program>(std::move(program)), 0});
  }
  return timed;
}

run::WorkerDevice full_device(const Inputs& inputs, DeviceId id,
                              const std::optional<cluster::Route>& route) {
  run::WorkerDevice worker = worker_device(inputs.cluster, id, route);
  worker.speed = 1;
  worker.memory.reset();
  worker.tf32 = inputs.tf32 && worker.kind == "cuda";
  return worker;
}

std::vector<TimingTask> operator_work(const Inputs& inputs, const TaskPrograms& timed) {
  const OperatorTask& task = timed.task;
  const std::size_t beside = task.setting == OperatorTask::Setting::kShared
                                 ? cost::neighbours(inputs.cluster, task.device).size()
                                 : 0;
  const TimingTask one{.device = full_device(inputs, task.device),
                       .programs = timed.programs,
                       .per_program = kPerProgram};
  const std::vector<int> processors = run::usable_processors();
  const bool is_here = one.device.host.empty();
  const std::size_t count =
      is_here ? std::clamp<std::size_t>(processors.size(), 1, beside + 1) : beside + 1;
  std::vector<TimingTask> tasks(count, one);
  for (std::size_t i = 0; i < count; ++i)
    if (is_here && count > 1 && one.device.threads == 1) tasks[i].device.processor = processors[i];
  return tasks;
}

Result<std::vector<std::vector<PaceTimes>>> time_paces(const Inputs& inputs,
                                                       const std::vector<PaceWork>& wave,
                                                       Workers& workers) {
  std::vector<TimingTask> all;
  for (const PaceWork& each : wave) {
    MOTLEY_ASSIGN(const auto work, pace_work(inputs, each));
    all.insert(all.end(), work.begin(), work.end());
  }
  MOTLEY_ASSIGN(const auto times, workers.time_programs(all));
  std::vector<std::vector<PaceTimes>> by_item;
  std::size_t next = 0;
  for (const PaceWork& each : wave) {
    by_item.emplace_back();
    for (std::size_t i = 0; i < each.devices.size(); ++i, ++next) {
      if (times[next].size() != 2)
        return runtime_error("profile.pace", "motley-worker profile: wanted a step and a pause");
      by_item.back().push_back({times[next][0], times[next][1]});
    }
  }
  return by_item;
}

std::string machine_of(const Inputs& inputs, DeviceId id) {
  return worker_device(inputs.cluster, id).host;
}

}  // namespace motley::control
