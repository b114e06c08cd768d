#include "motley/synth/lower_rank.h"

#include <fmt/format.h>

#include <map>
#include <string_view>
#include <utility>

#include "motley/synth/operators/losses.h"
#include "motley/synth/operators/rewrite.h"
#include "motley/synth/step/shared_exchange.h"
#include "motley/synth/update.h"

namespace motley::synth {
namespace {

using graph::Form;
using graph::OutputKind;
using graph::ValueRole;
using program::BufferKind;

/// How far a rank's step has come with what several values share.
struct Progress {
  std::vector<BufferId> gathering;         ///< flat, by bucket of parameters begun
  std::size_t gathered = 0;                ///< how many of these are over
  std::vector<BufferId> exchanged;         ///< flat, by bucket of outputs begun
  std::vector<BufferId> targets, updates;  ///< buffers of the model, and their new values
  BufferId loss;
  std::map<std::int64_t, BufferId> metrics;  ///< by output of the graph
};

std::string bucket_label(std::size_t bucket) { return fmt::format("bucket {}", bucket); }
std::string gather_label(std::size_t bucket) { return fmt::format("parameters {}", bucket); }

/// An input, parameter, buffer or constant of the graph.
void add_source(RankStep& rank, ValueId id) {
  static const std::map<ValueRole, BufferKind> kKinds = {
      {ValueRole::kInput, BufferKind::kInput},
      {ValueRole::kParameter, BufferKind::kParameter},
      {ValueRole::kBuffer, BufferKind::kModelBuffer},
      {ValueRole::kConstant, BufferKind::kConstant}};
  const graph::Value& value = rank.graph().value(id);
  const Form& form = rank.step().home(id);
  const BufferId buffer = rank.builder().add_buffer(
      {kKinds.at(value.role), value.dtype, rank.local_shape(id, form), value.name, BufferId()});
  rank.set_value(id, buffer);
  if (value.role == ValueRole::kParameter && form.kind == graph::FormKind::kSharded) {
    const graph::Slab slab = slab_of(rank.whole_shape(id), form);
    rank.builder().set_part(buffer,
                            {slab.before, rank.begin(slab.extent), slab.extent, slab.after});
  }
}

/// The tangent and the inputs that operators use.
void load_inputs(RankStep& rank, Update& update) {
  const graph::Graph& graph = rank.graph();
  std::vector<char> used(graph.values.size(), 0);
  for (const OpId id : rank.step().schedule.order)
    graph::for_each_value(graph.op(id).arguments, [&](ValueId v) { used[v.index()] = 1; });
  std::int64_t input = 0;
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const graph::Value& value = graph.values[v];
    const ValueId id(static_cast<std::int64_t>(v));
    if (value.role == ValueRole::kTangent && used[v])
      rank.set_value(id, update.make_tangent(value.dtype));
    if (value.role != ValueRole::kInput) continue;
    if (used[v])
      rank.builder().compute("motley::load", {{input}}, {rank.value(id)}, "load " + value.name);
    ++input;
  }
}

void add_sources(RankStep& rank) {
  const graph::Graph& graph = rank.graph();
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const ValueRole role = graph.values[v].role;
    if (role != ValueRole::kActivation && role != ValueRole::kTangent)
      add_source(rank, ValueId(static_cast<std::int64_t>(v)));
  }
}

/// Has parameters whole that are kept in parts, for the operator at this position: what the next
/// bucket brings is on its way while this one is used.
void gather_parameters(RankStep& rank, std::int64_t position, Progress& progress) {
  const std::vector<Bucket>& gathers = rank.step().gathers;
  std::vector<BufferId>& begun = progress.gathering;
  while (begun.size() < gathers.size() &&
         (begun.empty() || gathers[begun.size() - 1].ready <= position))
    begun.push_back(start_exchange(rank, gathers[begun.size()], gather_label(begun.size())));
  for (std::size_t& next = progress.gathered;
       next < gathers.size() && gathers[next].ready <= position; ++next) {
    const std::vector<BufferId> wholes =
        finish_exchange(rank, gathers[next], begun[next], gather_label(next));
    for (std::size_t i = 0; i < wholes.size(); ++i)
      rank.set_whole(gathers[next].items[i].value, wholes[i]);
  }
}

/// Starts the exchanges of outputs that are there after the operator at this position.
void exchange_outputs(RankStep& rank, std::int64_t position, Progress& progress) {
  const std::vector<Bucket>& buckets = rank.step().schedule.buckets;
  std::vector<BufferId>& begun = progress.exchanged;
  while (begun.size() < buckets.size() && buckets[begun.size()].ready <= position)
    begun.push_back(start_exchange(rank, buckets[begun.size()], bucket_label(begun.size())));
}

/// Notes what becomes of one of the graph's outputs, now that its value is what it should be.
void add_output(const RankStep& rank, std::int64_t index, BufferId value, Progress& progress,
                Update& update) {
  const graph::Output& output = rank.graph().outputs[static_cast<std::size_t>(index)];
  if (output.kind == OutputKind::kLoss) progress.loss = value;
  if (output.kind == OutputKind::kMetric) progress.metrics[index] = value;
  if (output.kind == OutputKind::kUpdate) {
    progress.targets.push_back(rank.value(output.of));
    progress.updates.push_back(value);
  }
  if (output.kind == OutputKind::kGradient) update.add(output.of, value);
}

/// First what needs no exchange, then each bucket when it is over; last the new values of buffers
/// and the report.
void finish_outputs(RankStep& rank, Progress& progress, Update& update) {
  const ShardedStep& step = rank.step();
  for (const std::int64_t index : step.schedule.direct) {
    const auto o = static_cast<std::size_t>(index);
    const ValueId value = step.graph.outputs[o].value;
    add_output(rank, index, rank.in_form(value, step.outputs[o]), progress, update);
  }
  update.write("update");
  BufferId stop;  // whether anybody wants to
  for (std::size_t b = 0; b < progress.exchanged.size(); ++b) {
    const Bucket& bucket = step.schedule.buckets[b];
    const std::vector<BufferId> values =
        finish_exchange(rank, bucket, progress.exchanged[b], bucket_label(b));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const bool is_stop = bucket.items[i].output == BucketItem::kStop;
      if (is_stop) stop = values[i];
      if (!is_stop) add_output(rank, bucket.items[i].output, values[i], progress, update);
    }
    update.write(bucket_label(b));
  }
  update.finish();
  if (!progress.targets.empty())
    rank.builder().compute("motley::assign",
                           {{buffer_list(progress.targets)}, {buffer_list(progress.updates)}}, {},
                           "buffers");
  if (stop.is_none()) stop = request_stop(rank);  // nobody else is there
  std::vector<BufferId> metrics;
  for (const auto& [output, value] : progress.metrics) metrics.push_back(value);
  rank.builder().compute(
      "motley::report",
      {{progress.loss}, {stop}, buffer_or_none(update.norm()), {buffer_list(metrics)}}, {},
      "report");
}

}  // namespace

program::DeviceProgram lower_rank(const ShardedStep& step, Place& place,
                                  program::DeviceProgram start) {
  RankStep here(step, place, std::move(start));
  Progress progress;
  add_sources(here);
  Update update(here);
  load_inputs(here, update);
  const Schedule& schedule = step.schedule;
  for (std::size_t i = 0; i <= schedule.order.size(); ++i) {
    if (i == schedule.early)
      for (const OpId id : schedule.early_counts) {
        RankOperator loss(here, id);
        count_labels(loss, Labels::kSpread);
      }
    if (i == schedule.order.size()) break;
    const OpId id = schedule.order[i];
    const auto position = static_cast<std::int64_t>(i);
    gather_parameters(here, position, progress);
    write_operator(here, id);
    for (const ValueId output : step.graph.op(id).outputs)
      for (const Form& form : step.wanted[output.index()]) here.start_conversion(output, form);
    exchange_outputs(here, position, progress);
  }
  finish_outputs(here, progress, update);
  return here.builder().finish();
}

}  // namespace motley::synth
