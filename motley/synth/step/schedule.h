#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "motley/base/units.h"
#include "motley/graph/graph.h"

namespace motley::synth {

/// Exchanges shared by several values, packed into one flat buffer.
enum class Exchange : std::uint8_t {
  kAllReduce,      ///< terms become their sum, whole on all devices
  kReduceScatter,  ///< terms become the devices' parts of their sum
  kAllGather,      ///< parts become whole on all devices
};

/// A shared exchange's item: an output (loss, gradient, buffer update), stop request, or parameter.
struct BucketItem {
  static constexpr std::int64_t kStop = -1, kSource = -2;
  std::int64_t output = kStop;  ///< index in the graph's outputs, kStop, or kSource: a parameter
  ValueId value;                ///< none for kStop
};

/// Items of one dtype packed into one flat buffer.
struct Bucket {
  Exchange exchange = Exchange::kAllReduce;
  DType dtype = DType::kF32;
  std::vector<BucketItem> items;
  std::int64_t ready = -1;  ///< position in the order after which all items are ready; -1: start
};

/// An item and the position in the order after which it can be exchanged.
struct ReadyItem {
  std::int64_t ready = -1;
  Exchange exchange = Exchange::kAllReduce;
  BucketItem item;
};

/// Fills buckets of about `bucket_bytes` of whole values in order. Returns them by readiness.
std::vector<Bucket> fill_buckets(const graph::Graph& graph, const std::vector<ReadyItem>& items,
                                 Bytes bucket_bytes);

/// What an operator needs from other devices.
struct OpNeeds {
  std::vector<ValueId> summed;  ///< operands read only as sums over the devices
  bool counts_labels = false;   ///< a mean loss over labels counted on all devices
  /// Operands made by other operators that must be exchanged before they are read.
  std::vector<ValueId> exchanged;
  std::int64_t micro_batch = 0;  ///< the operator's micro-batch
};

/// The order of instructions; identical on all devices of a group.
struct Schedule {
  std::vector<OpId> order;         ///< operators that an output depends on
  std::size_t early = 0;           ///< number of leading operators that only prepare sums of inputs
  std::vector<OpId> early_counts;  ///< losses whose labels are ready after those
  std::vector<char> summed;        ///< by value: its sum over the devices is needed
  std::vector<char> in_place;      ///< by value: the partial sum is not needed afterwards
  std::vector<Bucket> buckets;     ///< in the order of readiness
  std::vector<std::int64_t> direct;  ///< indices of outputs in no bucket

  int bucket_of(std::int64_t output) const;
};

/// Returns each operator's position in an order; unspecified for missing operators.
std::vector<std::size_t> places_in(const std::vector<OpId>& order, std::size_t operators);

/// Returns the schedule of a device alone: graph order, no sums, all outputs direct.
Schedule schedule_alone(const graph::Graph& graph);

/// Operators [first, end) of an order.
struct OpStretch {
  std::size_t first = 0, end = 0;
};

/// Constraints on the order in a larger step (PartOfStep): operators may move only within a task.
struct TaskOrder {
  const std::vector<OpStretch>* tasks = nullptr;  ///< ascending
  std::vector<ValueId> given;                     ///< to others, which wait for them
  std::function<double(OpId)> flops;              ///< of an operator
};

/// Returns graph order of all operators, but within a task gradients of parameters hide exchanges
/// as in make_schedule. Outputs are handled as for a group, without a stop request.
Schedule keep_order(const graph::Graph& graph, const std::vector<OpNeeds>& ops,
                    const std::vector<std::optional<Exchange>>& outputs, Bytes bucket_bytes,
                    const TaskOrder& tasks);

struct ScheduleOptions {
  Bytes bucket_bytes;
  std::int64_t turns = 1;  ///< micro-batches in flight at once (plan::Replica)
};
/// Returns the schedule of a group. Operators fed only by inputs whose results are summed go first,
/// so that the exchange overlaps with the forward pass. Preceding operators on which only outputs
/// depend (gradients of parameters) move directly before an operator that waits for an exchange,
/// and hide it. Outputs with a shared exchange go into buckets in the order of readiness.
/// Micro-batches are interleaved first if `turns` > 1 (turns.h). `ops`: by operator; `outputs`: by
/// output, its exchange in a bucket, or empty for none or a separate one. `sizes` may lack values
/// if no operand in `ops` is exchanged. O(graph).
Schedule make_schedule(const graph::Graph& graph, const graph::Sizes& sizes,
                       const std::vector<OpNeeds>& ops,
                       const std::vector<std::optional<Exchange>>& outputs,
                       const ScheduleOptions& options);

}  // namespace motley::synth
