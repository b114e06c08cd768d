#include "motley/search/split/micro_batch_steps.h"

#include <algorithm>
#include <limits>

#include "motley/program/memory.h"
#include "motley/synth/ranks/accumulation.h"

namespace motley::search {

MicroBatches micro_batches_of(const plan::Plan& plan, const graph::Graph& graph) {
  return {&graph, synth::options_of(plan), plan.replicas.front().micro_batches};
}

bool repeats_statistics(const MicroBatches& steps) {
  return steps.times > 1 && steps.lowering.batch_norm_span == plan::BatchNormSpan::kMicroBatch &&
         synth::trains_batch_norm(*steps.graph);
}

Bytes peak_of_tensors(const MicroBatches& steps, std::int64_t samples,
                      SplitEvaluator::Setting setting) {
  const bool is_alone = setting == SplitEvaluator::Setting::kAlone;
  const int ranks =
      is_alone ? 1 : synth::replicas_that_share(*steps.graph, steps.lowering.batch_norm);
  const auto program =
      synth::lower_first(*steps.graph, {samples, ranks, steps.times}, steps.lowering);
  return program ? program::find_memory_peak(*program).total
                 : Bytes(std::numeric_limits<std::int64_t>::max());
}

MicroBatchSteps::MicroBatchSteps(const SplitEvaluator& once, MicroBatches steps)
    : once_(once), steps_(std::move(steps)) {
  if (repeats_statistics(steps_)) blocking_ = static_cast<double>(steps_.times);
}

const StepCurves& MicroBatchSteps::curves(DeviceId device, Setting setting) const {
  const auto [known, is_new] = curves_.try_emplace({device, setting});
  if (is_new)
    known->second =
        cost::behind_passes(once_.curves(device, setting),
                            once_.curves(device, Setting::kShared).end, steps_.times - 1);
  return known->second;
}

GroupExchanges MicroBatchSteps::group_times(const std::vector<DeviceId>& group) const {
  GroupExchanges times = once_.group_times(group);
  times.blocking *= blocking_;
  return times;
}

std::vector<GroupExchanges> MicroBatchSteps::least_times(const std::vector<DeviceId>& pool,
                                                         std::size_t most) const {
  std::vector<GroupExchanges> times = once_.least_times(pool, most);
  for (GroupExchanges& each : times) each.blocking *= blocking_;
  return times;
}

Bytes MicroBatchSteps::peak_bytes(DeviceId device, std::int64_t samples, Setting setting) const {
  const Bytes one = once_.peak_bytes(device, samples, setting);
  if (steps_.times == 1) return one;
  const auto [more, is_new] = more_.try_emplace({samples, setting});
  if (is_new) {
    MicroBatches alone = steps_;
    alone.times = 1;
    const Bytes all = peak_of_tensors(steps_, steps_.times * samples, setting);
    more->second = std::max(Bytes(0), all - peak_of_tensors(alone, samples, setting));
  }
  const Bytes room(std::numeric_limits<std::int64_t>::max() - one.value);
  return one + std::min(more->second, room);
}

}  // namespace motley::search
