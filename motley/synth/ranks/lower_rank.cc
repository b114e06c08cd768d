#include "motley/synth/ranks/lower_rank.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "motley/synth/operators/losses.h"
#include "motley/synth/operators/rewrite.h"
#include "motley/synth/step/shared_exchange.h"

namespace motley::synth {
namespace {

using graph::Form;
using graph::OutputKind;
using graph::ValueRole;
using program::BufferKind;

constexpr std::string_view kGather = "parameters ", kGatherAgain = "again ";

std::string gather_label(const RankStep& rank, std::size_t bucket) {
  const ValueId any = rank.step().gathers[bucket].items.front().value;
  const bool is_again = rank.step().sharding.gathered_again.contains(any);
  return fmt::format("{}{}", is_again ? kGatherAgain : kGather, bucket);
}

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

/// Loads the tangent and the inputs that operators use.
void load_inputs(RankStep& rank, Update& update) {
  const graph::Graph& graph = rank.graph();
  std::vector<char> used(graph.values.size(), 0);
  for (const OpId id : rank.step().schedule.order)
    graph::for_each_value(graph.op(id).arguments, [&](ValueId v) { used[v.index()] = 1; });
  std::int64_t input = 0;
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const graph::Value& value = graph.values[v];
    const ValueId id(v);
    if (value.role == ValueRole::kTangent && used[v])
      rank.set_value(id, update.make_tangent(value.dtype));
    if (value.role != ValueRole::kInput) continue;
    const PartOfStep* part = rank.step().part;
    const std::int64_t number =
        part == nullptr ? input : part->inputs[static_cast<std::size_t>(input)];
    if (used[v])
      rank.builder().compute("motley::load", {{number}}, {rank.value(id)}, "load " + value.name);
    ++input;
  }
}

void add_sources(RankStep& rank) {
  const graph::Graph& graph = rank.graph();
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const ValueRole role = graph.values[v].role;
    if (role != ValueRole::kActivation && role != ValueRole::kTangent) add_source(rank, ValueId(v));
  }
}

}  // namespace

std::string bucket_label(std::size_t bucket) {
  return fmt::format("{}{}", program::kBucketLabel, bucket);
}

bool is_of_bucket(const program::Instruction& instruction) {
  return instruction.origin.is_none() && (instruction.label.starts_with(kGather) ||
                                          instruction.label.starts_with(program::kBucketLabel));
}

RankWriter::RankWriter(RankStep& rank) : rank_(rank), update_(rank) {}

void RankWriter::begin() {
  add_sources(rank_);
  update_.begin();
  load_inputs(rank_, update_);
}

/// Gathers sharded parameters for this position, with the next bucket already in flight.
void RankWriter::gather_parameters(std::int64_t position) {
  const std::vector<Bucket>& gathers = rank_.step().gathers;
  while (gathering_.size() < gathers.size() &&
         (gathering_.empty() || gathers[gathering_.size() - 1].ready <= position))
    gathering_.push_back(
        start_exchange(rank_, gathers[gathering_.size()], gather_label(rank_, gathering_.size())));
  for (; gathered_ < gathers.size() && gathers[gathered_].ready <= position; ++gathered_) {
    const Bucket& bucket = gathers[gathered_];
    const std::vector<BufferId> wholes =
        finish_exchange(rank_, bucket, gathering_[gathered_], gather_label(rank_, gathered_));
    for (std::size_t i = 0; i < wholes.size(); ++i)
      rank_.set_whole(bucket.items[i].value, wholes[i]);
  }
}

/// Starts the exchanges of outputs that are ready after the operator at this position.
void RankWriter::exchange_outputs(std::int64_t position) {
  const std::vector<Bucket>& buckets = rank_.step().schedule.buckets;
  while (exchanged_.size() < buckets.size() && buckets[exchanged_.size()].ready <= position)
    exchanged_.push_back(
        start_exchange(rank_, buckets[exchanged_.size()], bucket_label(exchanged_.size())));
}

void RankWriter::write(std::size_t position) {
  const ShardedStep& step = rank_.step();
  const OpId id = step.schedule.order[position];
  const auto at = static_cast<std::int64_t>(position);
  gather_parameters(at);
  write_operator(rank_, id);
  for (const ValueId output : step.graph.op(id).outputs)
    for (const Form& form : step.wanted[output.index()]) rank_.start_conversion(output, form);
  exchange_outputs(at);
}

std::vector<RankWriter::Given> RankWriter::direct_outputs() {
  const ShardedStep& step = rank_.step();
  std::vector<Given> given;
  for (const std::int64_t index : step.schedule.direct) {
    const auto o = static_cast<std::size_t>(index);
    given.push_back({index, rank_.in_form(step.graph.outputs[o].value, step.outputs[o])});
  }
  return given;
}

std::vector<RankWriter::Given> RankWriter::exchanged_outputs(std::size_t bucket) {
  const Bucket& about = rank_.step().schedule.buckets[bucket];
  const std::vector<BufferId> values =
      finish_exchange(rank_, about, exchanged_[bucket], bucket_label(bucket));
  std::vector<Given> given;
  for (std::size_t i = 0; i < values.size(); ++i)
    given.push_back({about.items[i].output, values[i]});
  return given;
}

BufferId RankWriter::output(std::int64_t output) {
  if (const auto known = outputs_.find(output); known != outputs_.end()) return known->second;
  const ShardedStep& step = rank_.step();
  if (const int bucket = step.schedule.bucket_of(output); bucket >= 0) {
    for (const Given& given : exchanged_outputs(static_cast<std::size_t>(bucket)))
      outputs_[given.output] = given.value;
    return outputs_.at(output);
  }
  const auto o = static_cast<std::size_t>(output);
  return outputs_[output] = rank_.in_form(step.graph.outputs[o].value, step.outputs[o]);
}

void RankWriter::add_output(const Given& given) {
  const graph::Output& output = rank_.graph().outputs[static_cast<std::size_t>(given.output)];
  if (output.kind == OutputKind::kLoss) loss_ = given.value;
  if (output.kind == OutputKind::kMetric) metrics_[given.output] = given.value;
  if (output.kind == OutputKind::kUpdate) {
    targets_.push_back(rank_.value(output.of));
    updates_.push_back(given.value);
  }
  if (output.kind == OutputKind::kGradient) update_.add(output.of, given.value);
}

void RankWriter::assign_buffers() {
  if (targets_.empty()) return;
  rank_.builder().compute("motley::assign", {{buffer_list(targets_)}, {buffer_list(updates_)}}, {},
                          "buffers");
}

std::vector<BufferId> RankWriter::metrics() const {
  std::vector<BufferId> metrics;
  for (const auto& [output, value] : metrics_) metrics.push_back(value);
  return metrics;
}

namespace {

/// Writes updates without exchanges, each bucket after its exchange, new buffers, the report.
void finish_outputs(RankWriter& writer) {
  RankStep& rank = writer.rank();
  Update& update = writer.update();
  for (const RankWriter::Given& given : writer.direct_outputs()) writer.add_output(given);
  update.write("update");
  BufferId stop;  // whether any rank requests it
  for (std::size_t b = 0; b < writer.buckets(); ++b) {
    for (const RankWriter::Given& given : writer.exchanged_outputs(b))
      if (given.output == RankWriter::kStop)
        stop = given.value;
      else
        writer.add_output(given);
    update.write(bucket_label(b));
  }
  update.finish();
  writer.assign_buffers();
  if (stop.is_none()) stop = request_stop(rank);  // a device alone
  rank.builder().compute(
      "motley::report",
      {{writer.loss()}, {stop}, buffer_or_none(update.norm()), {buffer_list(writer.metrics())}}, {},
      "report");
}

}  // namespace

program::DeviceProgram lower_rank(const ShardedStep& step, Place& place,
                                  program::DeviceProgram start) {
  ProgramBuilder builder(std::move(start));
  RankStep rank(step, place, builder);
  RankWriter writer(rank);
  writer.begin();
  const Schedule& schedule = step.schedule;
  for (std::size_t i = 0; i <= schedule.order.size(); ++i) {
    if (i == schedule.early)
      for (const OpId id : schedule.early_counts) {
        RankOperator loss(rank, id);
        count_labels(loss, Labels::kSpread);
      }
    if (i < schedule.order.size()) writer.write(i);
  }
  finish_outputs(writer);
  return builder.finish();
}

}  // namespace motley::synth
