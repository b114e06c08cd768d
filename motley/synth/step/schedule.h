#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "motley/base/units.h"
#include "motley/graph/graph.h"

namespace motley::synth {

/// Exchanges that several values share: what each device has of them travels as one flat buffer.
enum class Exchange : std::uint8_t {
  kAllReduce,      ///< terms become their sum, whole on all devices
  kReduceScatter,  ///< terms become the devices' parts of their sum
  kAllGather,      ///< parts become whole on all devices
};

/// Something that is exchanged together with others: an output of the graph (loss, gradient, buffer
/// update), the wish to stop, or a parameter.
struct BucketItem {
  static constexpr std::int64_t kStop = -1, kSource = -2;
  std::int64_t output = kStop;  ///< position in the graph's outputs, kStop, or kSource: a parameter
  ValueId value;                ///< none for kStop
};

/// Items of one dtype that travel as one flat buffer.
struct Bucket {
  Exchange exchange = Exchange::kAllReduce;
  DType dtype = DType::kF32;
  std::vector<BucketItem> items;
  std::int64_t ready = -1;  ///< position in the order from which all items are there; -1: the start
};

/// An item and the position in the order from which it can travel.
struct ReadyItem {
  std::int64_t ready = -1;
  Exchange exchange = Exchange::kAllReduce;
  BucketItem item;
};

/// Puts items into buckets of about `bucket_bytes` of whole values, in the order given; buckets in
/// the order in which they are ready.
std::vector<Bucket> fill_buckets(const graph::Graph& graph, const std::vector<ReadyItem>& items,
                                 Bytes bucket_bytes);

/// What an operator wants from the other devices.
struct OpNeeds {
  std::vector<ValueId> summed;  ///< operands of which it reads only the sum over the devices
  bool counts_labels = false;   ///< a mean loss, whose labels are counted over all devices
  /// Operands that other operators give and that must be exchanged before it reads them.
  std::vector<ValueId> exchanged;
  std::int64_t micro_batch = 0;  ///< whose operator it is
};

/// What is emitted in which order; the same for all devices of a group.
struct Schedule {
  std::vector<OpId> order;         ///< operators that anything wanted depends on
  std::size_t early = 0;           ///< how many of them, at the front, only prepare sums of inputs
  std::vector<OpId> early_counts;  ///< losses whose labels are ready then
  std::vector<char> summed;        ///< by value: its sum over the devices is wanted
  std::vector<char> in_place;      ///< by value: nobody needs the partial sum any more
  std::vector<Bucket> buckets;     ///< in the order in which they become ready
  std::vector<std::int64_t> direct;  ///< outputs in no bucket, by position

  /// In which bucket an output travels; -1: in none.
  int bucket_of(std::int64_t output) const;
};

/// Where each operator of a graph is in an order; for those that it lacks, nothing in particular.
std::vector<std::size_t> places_in(const std::vector<OpId>& order, std::size_t operators);

/// For a device alone: graph order, nothing summed, all outputs direct.
Schedule schedule_alone(const graph::Graph& graph);

/// Operators [first, end) of an order.
struct OpStretch {
  std::size_t first = 0, end = 0;
};

/// In a larger step (PartOfStep), whose operators keep their order but for those of a task.
struct TaskOrder {
  const std::vector<OpStretch>* tasks = nullptr;  ///< ascending
  std::vector<ValueId> given;                     ///< to others, who wait for them
  std::function<double(OpId)> flops;              ///< of an operator
};

/// Graph order, of all operators; but within a task gradients of parameters hide exchanges as in
/// make_schedule. Outputs as for a group. No wish to stop travels with them.
Schedule keep_order(const graph::Graph& graph, const std::vector<OpNeeds>& ops,
                    const std::vector<std::optional<Exchange>>& outputs, Bytes bucket_bytes,
                    const TaskOrder& tasks);

/// For a group: operators that only inputs feed and whose results are summed go first, so that the
/// exchange overlaps with the forward pass; before an operator that waits for an exchange come
/// those of the last ones that nothing but outputs depends on (gradients of parameters), so that
/// they hide it; outputs that others wait for are put into buckets in
/// the order in which they become ready. Micro-batches take turns first, if any do (turns.h).
/// `ops` by operator; `outputs` by output: how it is
/// exchanged in a bucket; empty: not at all, or by itself. `sizes` need not be known where `ops`
/// have no operands exchanged. O(graph).
struct ScheduleOptions {
  Bytes bucket_bytes;
  std::int64_t turns = 1;  ///< micro-batches under way at a time (plan::Replica)
};
Schedule make_schedule(const graph::Graph& graph, const graph::Sizes& sizes,
                       const std::vector<OpNeeds>& ops,
                       const std::vector<std::optional<Exchange>>& outputs,
                       const ScheduleOptions& options);

}  // namespace motley::synth
