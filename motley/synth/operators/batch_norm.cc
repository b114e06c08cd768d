// Batch norm over the samples of all devices: local channel sums, their exchange, the rest.

#include "motley/synth/operators/batch_norm.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "motley/synth/operators/plain.h"
#include "motley/synth/operators/rewrite.h"

namespace motley::synth {
namespace {

constexpr std::string_view kWithUpdate = "aten::_batch_norm_with_update_functional";

/// Returns per-channel sums over all devices, and the elements of each channel.
BufferId channel_sums(RankOperator& op, std::string_view name, Arguments arguments,
                      std::int64_t channels) {
  const BufferId sums = op.call(name, std::move(arguments), DType::kF64, {2, channels});
  op.all_reduce(sums);
  return sums;
}

struct Channels {
  std::int64_t count, elements;  ///< elements per channel, over all devices
};

Channels channels_of(RankOperator& op, ValueId x) {
  const std::int64_t count = op.rank().whole_shape(x)[1];
  return {count, count == 0 ? 0 : op.rank().whole_elements(x) / count};
}

/// Normalises by local statistics; the running ones become terms of the weighted mean.
void write_batch_norm_local(RankOperator& op) {
  if (op.part() == 0) return write_nothing(op);
  write_weighed(op, op.part(),
                [&](std::size_t r) { return op.result_form(r) == graph::kPartialForm; });
}

/// (x, weight, bias, running mean, running variance, training, momentum, eps); both running
/// statistics are absent in "no_stats". Results: y, mean, rstd, the running ones.
void write_batch_norm(RankOperator& op) {
  if (op.rank().step().options.batch_norm == plan::BatchNormMode::kLocal)
    return write_batch_norm_local(op);
  const bool has_running = op.op().overload != "no_stats";
  const Arguments given = op.arguments();
  const Channels channels = channels_of(op, op.given<ValueId>(0));
  const BufferId sums = channel_sums(op, "motley::batch_norm_sums", {given[0]}, channels.count);
  std::vector<BufferId> outputs;
  for (std::size_t r = 0; r < op.op().outputs.size(); ++r)
    if (op.op().name != kWithUpdate || r != 3) outputs.push_back(op.define(r));  // 3: the reserve
  while (outputs.size() < 5) outputs.push_back(op.builder().add_temporary(DType::kNone, {}));
  op.write("motley::batch_norm",
           {given[0],
            given[1],
            given[2],
            has_running ? given[3] : none(),
            has_running ? given[4] : none(),
            {sums},
            number(channels.elements),
            given[given.size() - 2],
            given[given.size() - 1]},
           std::move(outputs));
}

/// (grad, x, weight, running mean, running variance, mean, rstd, ...)
void write_batch_norm_backward(RankOperator& op) {
  const Arguments given = op.arguments();
  const Channels channels = channels_of(op, op.given<ValueId>(1));
  const BufferId sums = channel_sums(op, "motley::batch_norm_backward_sums",
                                     {given[0], given[1], given[5], given[6]}, channels.count);
  std::vector<BufferId> outputs;
  for (std::size_t r = 0; r < op.op().outputs.size(); ++r) outputs.push_back(op.define(r));
  op.write("motley::batch_norm_backward",
           {given[0], given[1], given[2], given[5], given[6], {sums}, number(channels.elements)},
           std::move(outputs));
}

constexpr Rewrite kBatchNorms[] = {
    {"aten::native_batch_norm", takes_any, write_batch_norm},
    {"aten::_native_batch_norm_legit", takes_any, write_batch_norm},
    {"aten::_native_batch_norm_legit_functional", takes_any, write_batch_norm},
    {kWithUpdate, takes_any, write_batch_norm},
    {"aten::native_batch_norm_backward", takes_any, write_batch_norm_backward},
    {"aten::batch_norm_backward", takes_any, write_batch_norm_backward},
};

bool is_written_by(const graph::Op& op, void (*write)(RankOperator&)) {
  return std::any_of(std::begin(kBatchNorms), std::end(kBatchNorms), [&](const Rewrite& each) {
    return each.name == op.name && each.write == write;
  });
}

}  // namespace

Rewrites batch_norm_rewrites() { return kBatchNorms; }

bool is_batch_norm_backward(const graph::Op& op) {
  return is_written_by(op, write_batch_norm_backward);
}

bool trains_batch_norm(const graph::Op& op) {
  if (!is_written_by(op, write_batch_norm)) return false;
  return op.name == kWithUpdate || is_true(op.arguments[op.overload == "no_stats" ? 3 : 5]);
}

}  // namespace motley::synth
