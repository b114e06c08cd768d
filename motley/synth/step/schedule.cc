#include "motley/synth/step/schedule.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "motley/graph/reach.h"
#include "motley/graph/work.h"
#include "motley/synth/step/turns.h"

namespace motley::synth {
namespace {

/// Ratio. An exchange with a fraction of a step's exchanged bytes is hidden by this many times that
/// fraction of the arithmetic that can be delayed, which is about a third of a step's. So exchanges
/// that last as long as the step's compute are hidden by it.
constexpr double kPutOff = 3;

/// Finds values that depend only on inputs and constants, by id.
std::vector<char> find_early_values(const graph::Graph& graph) {
  std::vector<char> early(graph.values.size(), 0);
  for (std::size_t v = 0; v < graph.values.size(); ++v)
    early[v] = graph.values[v].role == graph::ValueRole::kInput ||
               graph.values[v].role == graph::ValueRole::kConstant;
  for (const graph::Op& op : graph.ops) {
    bool all = true;
    graph::for_each_value(op.arguments, [&](ValueId v) { all = all && early[v.index()]; });
    for (const ValueId output : op.outputs) early[output.index()] = all;
  }
  return early;
}

/// Returns the target and class weights of a mean negative log-likelihood.
std::vector<ValueId> label_operands(const graph::Op& op) {
  std::vector<ValueId> operands;
  for (const std::size_t position : {1, 2})
    if (const auto* id = std::get_if<ValueId>(&op.arguments[position].value))
      operands.push_back(*id);
  return operands;
}

void order_operators(const graph::Graph& graph, const std::vector<OpNeeds>& ops,
                     Schedule& schedule) {
  const graph::Reach live = graph::find_live(graph);
  const std::vector<char> early = find_early_values(graph);
  const auto is_early = [&](ValueId v) { return early[v.index()] != 0; };
  graph::Reach first(graph);
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    if (!live.holds(i)) continue;
    for (const ValueId value : ops[i].summed) {
      schedule.summed[value.index()] = 1;
      if (is_early(value)) first.add(value);
    }
    if (!ops[i].counts_labels) continue;
    const std::vector<ValueId> labels = label_operands(graph.ops[i]);
    if (!std::all_of(labels.begin(), labels.end(), is_early)) continue;
    for (const ValueId value : labels) first.add(value);
    schedule.early_counts.push_back(OpId(i));
  }
  first.close();
  for (const bool now : {true, false}) {
    for (std::size_t i = 0; i < graph.ops.size(); ++i)
      if (live.holds(i) && first.holds(i) == now) schedule.order.push_back(OpId(i));
    if (now) schedule.early = schedule.order.size();
  }
}

/// Delays gradients of parameters: before an operator that waits for an exchange it moves the last
/// preceding operators on which only outputs depend.
class PutOff {
 public:
  PutOff(const graph::Graph& graph, const graph::Sizes& sizes, const std::vector<OpNeeds>& ops,
         std::function<double(OpId)> flops, std::vector<OpId>& order)
      : graph_(graph),
        sizes_(sizes),
        ops_(ops),
        flops_(std::move(flops)),
        order_(order),
        is_there_(graph.values.size(), 0),
        leads_(graph.values.size(), 0),
        is_here_(graph.ops.size(), 0) {}

  /// Marks a value that others wait for.
  void give(ValueId value) { leads_[value.index()] = 1; }

  /// Handles a range after the earlier ones; `beside`: bytes exchanged by others meanwhile.
  void run(const OpStretch& stretch, double beside) {
    const auto& [first, end] = stretch;
    const std::vector<double> waits = find_waits(stretch);
    const double exchanged = std::accumulate(waits.begin(), waits.end(), 0.0);
    if (exchanged == 0) return;
    const std::vector<char> is_aside = find_asides(stretch, waits);
    double work = 0;
    std::vector<double> flops(waits.size(), 0);
    for (std::size_t i = 0; i < flops.size(); ++i)
      if (is_aside[i] != 0) work += flops[i] = flops_(order_[first + i]);
    std::vector<std::size_t> positions(waits.size());
    std::iota(positions.begin(), positions.end(), std::size_t{0});
    std::size_t begin = 0;
    for (std::size_t i = 0; i < waits.size(); ++i) {
      if (waits[i] == 0) continue;
      const double most = kPutOff * waits[i] / (exchanged + beside) * work;
      std::size_t from = i;  // asides from here on are delayed
      for (double sum = 0; from > begin && sum < most; --from) sum += flops[from - 1];
      std::stable_partition(positions.begin() + at(from), positions.begin() + at(i),
                            [&](std::size_t k) { return is_aside[k] == 0; });
      begin = i + 1;
    }
    const std::vector<OpId> before(order_.begin() + at(first), order_.begin() + at(end));
    for (std::size_t i = 0; i < positions.size(); ++i) order_[first + i] = before[positions[i]];
  }

 private:
  static std::ptrdiff_t at(std::size_t i) { return static_cast<std::ptrdiff_t>(i); }

  /// Returns the bytes of exchanges started in the range, by the first operator that waits.
  std::vector<double> find_waits(const OpStretch& stretch) {
    std::vector<double> waits;
    for (std::size_t i = stretch.first; i < stretch.end; ++i) is_here_[order_[i].index()] = 1;
    for (std::size_t i = stretch.first; i < stretch.end; ++i) {
      double& sum = waits.emplace_back(0);
      for (const ValueId value : ops_[order_[i].index()].exchanged)
        if (std::exchange(is_there_[value.index()], 1) == 0 &&
            is_here_[graph_.value(value).producer.index()] != 0)
          sum += static_cast<double>(graph::value_bytes(graph_.value(value), sizes_));
    }
    for (std::size_t i = stretch.first; i < stretch.end; ++i) is_here_[order_[i].index()] = 0;
    return waits;
  }

  /// Finds operators of the range on which no waiting operator and no other region depends.
  std::vector<char> find_asides(const OpStretch& stretch, const std::vector<double>& waits) {
    std::vector<char> is_aside(waits.size());
    for (std::size_t i = waits.size(); i-- > 0;) {
      const graph::Op& op = graph_.op(order_[stretch.first + i]);
      const bool leads_on =
          waits[i] > 0 || std::any_of(op.outputs.begin(), op.outputs.end(),
                                      [&](ValueId output) { return leads_[output.index()] != 0; });
      is_aside[i] = leads_on ? 0 : 1;
      if (leads_on)
        graph::for_each_value(op.arguments, [&](ValueId value) { leads_[value.index()] = 1; });
    }
    return is_aside;
  }

  const graph::Graph& graph_;
  const graph::Sizes& sizes_;
  const std::vector<OpNeeds>& ops_;
  std::function<double(OpId)> flops_;
  std::vector<OpId>& order_;
  std::vector<char> is_there_;  // by value: already exchanged
  std::vector<char> leads_;     // by value: a waiting operator or another region depends on it
  std::vector<char> is_here_;   // by operator: in the range
};

/// Does the operator give a dense result in memory of its own?
bool makes_dense_result(const graph::Graph& graph, const graph::Value& value) {
  if (value.producer.is_none()) return false;
  const std::string& name = graph.op(value.producer).name;
  return (value.shape.empty() && !graph::is_view(name)) || name == "aten::mm" ||
         name == "aten::addmm" || name == "aten::bmm" || name == "aten::baddbmm";
}

/// A sum may overwrite its operand if that has no other readers and can be sent without packing.
void find_in_place(const graph::Graph& graph, const std::vector<OpNeeds>& ops, Schedule& schedule) {
  std::vector<char> read(graph.values.size(), 0);
  for (const graph::Output& output : graph.outputs)
    if (graph::is_wanted(output)) read[output.value.index()] = 1;
  for (const OpId id : schedule.order) {
    const std::vector<ValueId>& summed = ops[id.index()].summed;
    graph::for_each_value(graph.op(id).arguments, [&](ValueId v) {
      if (std::find(summed.begin(), summed.end(), v) == summed.end()) read[v.index()] = 1;
    });
  }
  for (std::size_t v = 0; v < graph.values.size(); ++v)
    schedule.in_place[v] =
        schedule.summed[v] && !read[v] && makes_dense_result(graph, graph.values[v]);
}

/// Returns the stop request, always ready, and exchanged outputs in the order of readiness.
std::vector<ReadyItem> find_items(const graph::Graph& graph,
                                  const std::vector<std::optional<Exchange>>& outputs,
                                  Schedule& schedule) {
  std::vector<std::int64_t> position(graph.ops.size(), -1);
  for (std::size_t i = 0; i < schedule.order.size(); ++i)
    position[schedule.order[i].index()] = static_cast<std::int64_t>(i);
  std::vector<ReadyItem> items{{}};
  for (std::size_t o = 0; o < graph.outputs.size(); ++o) {
    const graph::Output& output = graph.outputs[o];
    if (!graph::is_wanted(output)) continue;
    const auto index = static_cast<std::int64_t>(o);
    if (!outputs[o]) {
      schedule.direct.push_back(index);
      continue;
    }
    const OpId producer = graph.value(output.value).producer;
    items.push_back(
        {producer.is_none() ? -1 : position[producer.index()], *outputs[o], {index, output.value}});
  }
  std::stable_sort(items.begin(), items.end(),
                   [](const ReadyItem& a, const ReadyItem& b) { return a.ready < b.ready; });
  return items;
}

/// Moves a stop request that is alone in a bucket to the end.
void delay_stop(Schedule& schedule) {
  for (Bucket& bucket : schedule.buckets)
    if (bucket.items.size() == 1 && bucket.items[0].output == BucketItem::kStop)
      bucket.ready = static_cast<std::int64_t>(schedule.order.size()) - 1;
  std::stable_sort(schedule.buckets.begin(), schedule.buckets.end(),
                   [](const Bucket& a, const Bucket& b) { return a.ready < b.ready; });
}

Schedule empty_schedule(const graph::Graph& graph) {
  Schedule schedule;
  schedule.summed.resize(graph.values.size(), 0);
  schedule.in_place.resize(graph.values.size(), 0);
  return schedule;
}

}  // namespace

std::vector<Bucket> fill_buckets(const graph::Graph& graph, const std::vector<ReadyItem>& items,
                                 Bytes bucket_bytes) {
  struct Open {
    std::size_t bucket;
    std::int64_t bytes;
  };
  std::map<std::pair<Exchange, DType>, Open> open;
  std::vector<Bucket> buckets;
  for (const ReadyItem& item : items) {
    const bool is_stop = item.item.output == BucketItem::kStop;
    const DType dtype = is_stop ? DType::kF32 : graph.value(item.item.value).dtype;
    const std::int64_t bytes =
        is_stop ? 0 : graph::value_bytes(graph.value(item.item.value), graph::Sizes{});
    const auto [found, is_new] = open.try_emplace({item.exchange, dtype}, Open{buckets.size(), 0});
    Open& current = found->second;
    if (is_new || (current.bytes > 0 && current.bytes + bytes > bucket_bytes.value)) {
      current = {buckets.size(), 0};
      buckets.push_back({item.exchange, dtype, {}, -1});
    }
    current.bytes += bytes;
    Bucket& bucket = buckets[current.bucket];
    bucket.items.push_back(item.item);
    bucket.ready = std::max(bucket.ready, item.ready);
  }
  std::stable_sort(buckets.begin(), buckets.end(),
                   [](const Bucket& a, const Bucket& b) { return a.ready < b.ready; });
  return buckets;
}

int Schedule::bucket_of(std::int64_t output) const {
  for (std::size_t b = 0; b < buckets.size(); ++b)
    for (const BucketItem& item : buckets[b].items)
      if (item.output == output) return static_cast<int>(b);
  return -1;
}

std::vector<std::size_t> places_in(const std::vector<OpId>& order, std::size_t operators) {
  std::vector<std::size_t> places(operators, 0);
  for (std::size_t i = 0; i < order.size(); ++i) places[order[i].index()] = i;
  return places;
}

Schedule schedule_alone(const graph::Graph& graph) {
  Schedule schedule = empty_schedule(graph);
  const graph::Reach live = graph::find_live(graph);
  for (std::size_t i = 0; i < graph.ops.size(); ++i)
    if (live.holds(i)) schedule.order.push_back(OpId(i));
  for (std::size_t o = 0; o < graph.outputs.size(); ++o)
    if (graph::is_wanted(graph.outputs[o])) schedule.direct.push_back(static_cast<std::int64_t>(o));
  return schedule;
}

Schedule keep_order(const graph::Graph& graph, const std::vector<OpNeeds>& ops,
                    const std::vector<std::optional<Exchange>>& outputs, Bytes bucket_bytes,
                    const TaskOrder& tasks) {
  Schedule schedule = empty_schedule(graph);
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    schedule.order.push_back(OpId(i));
    for (const ValueId value : ops[i].summed) schedule.summed[value.index()] = 1;
  }
  if (tasks.tasks != nullptr) {
    const graph::Sizes sizes;
    take_turns(graph, ops, *tasks.tasks, schedule.order);
    PutOff put_off(graph, sizes, ops, tasks.flops, schedule.order);
    for (const ValueId value : tasks.given) put_off.give(value);
    for (const OpStretch& task : *tasks.tasks) put_off.run(task, 0);
  }
  find_in_place(graph, ops, schedule);
  std::vector<ReadyItem> items = find_items(graph, outputs, schedule);
  std::erase_if(items, [](const ReadyItem& each) { return each.item.output == BucketItem::kStop; });
  schedule.buckets = fill_buckets(graph, items, bucket_bytes);
  return schedule;
}

Schedule make_schedule(const graph::Graph& graph, const graph::Sizes& sizes,
                       const std::vector<OpNeeds>& ops,
                       const std::vector<std::optional<Exchange>>& outputs,
                       const ScheduleOptions& options) {
  Schedule schedule = empty_schedule(graph);
  order_operators(graph, ops, schedule);
  take_turns(graph, ops, options.turns, schedule.early, schedule.order);
  double bucketed = 0;
  for (std::size_t o = 0; o < outputs.size(); ++o)
    if (outputs[o])
      bucketed +=
          static_cast<double>(graph::value_bytes(graph.value(graph.outputs[o].value), sizes));
  const auto flops = [&](OpId op) { return graph::op_work(graph, op, sizes).flops.value; };
  PutOff(graph, sizes, ops, flops, schedule.order)
      .run({schedule.early, schedule.order.size()}, bucketed);
  find_in_place(graph, ops, schedule);
  schedule.buckets =
      fill_buckets(graph, find_items(graph, outputs, schedule), options.bucket_bytes);
  delay_stop(schedule);
  return schedule;
}

}  // namespace motley::synth
