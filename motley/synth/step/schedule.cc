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

/// An exchange of a part of all bytes that are exchanged in a step is given so many times that part
/// of the arithmetic that can be put off to hide it. That is about a third of a step's: then
/// exchanges that last as long as the step's compute are hidden by it.
constexpr double kPutOff = 3;

/// Values that depend on inputs and constants only, by id.
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

/// Target and class weights of a mean negative log likelihood.
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
    schedule.early_counts.push_back(OpId(static_cast<std::int64_t>(i)));
  }
  first.close();
  for (const bool now : {true, false}) {
    for (std::size_t i = 0; i < graph.ops.size(); ++i)
      if (live.holds(i) && first.holds(i) == now)
        schedule.order.push_back(OpId(static_cast<std::int64_t>(i)));
    if (now) schedule.early = schedule.order.size();
  }
}

/// Puts off gradients of parameters: of the operators before one that waits for an exchange, the
/// last of those that nothing but outputs depends on come directly in front of it.
class PutOff {
 public:
  PutOff(const graph::Graph& graph, const graph::Sizes& sizes, const std::vector<OpNeeds>& ops,
         Schedule& schedule)
      : graph_(graph), sizes_(sizes), order_(schedule.order), early_(schedule.early) {
    find_waits(ops);
  }

  void run(const std::vector<std::optional<Exchange>>& outputs) {
    const double exchanged = std::accumulate(waits_.begin(), waits_.end(), 0.0);
    if (exchanged == 0) return;
    find_asides();
    double all = exchanged, work = 0;
    for (std::size_t o = 0; o < outputs.size(); ++o)
      if (outputs[o]) all += bytes(graph_.outputs[o].value);
    std::vector<double> flops(order_.size(), 0);
    for (std::size_t i = early_; i < order_.size(); ++i)
      if (is_aside_[i]) work += flops[i] = graph::op_work(graph_, order_[i], sizes_).flops.value;
    std::size_t begin = early_;
    for (std::size_t i = early_; i < order_.size(); ++i) {
      if (waits_[i] == 0) continue;
      const double most = kPutOff * waits_[i] / all * work;
      std::size_t first = i;  // from here on asides are put off
      for (double sum = 0; first > begin && sum < most; --first) sum += flops[first - 1];
      std::stable_partition(positions_.begin() + at(first), positions_.begin() + at(i),
                            [&](std::size_t k) { return is_aside_[k] == 0; });
      begin = i + 1;
    }
    std::vector<OpId> made;
    for (const std::size_t position : positions_) made.push_back(order_[position]);
    order_ = std::move(made);
  }

 private:
  static std::ptrdiff_t at(std::size_t i) { return static_cast<std::ptrdiff_t>(i); }

  double bytes(ValueId value) const {
    return static_cast<double>(graph::value_bytes(graph_.value(value), sizes_));
  }

  void find_waits(const std::vector<OpNeeds>& ops) {
    std::vector<char> is_there(graph_.values.size(), 0);
    for (std::size_t i = 0; i < order_.size(); ++i) {
      positions_.push_back(i);
      double sum = 0;
      for (const ValueId value : ops[order_[i].index()].exchanged)
        if (std::exchange(is_there[value.index()], 1) == 0 && i >= early_) sum += bytes(value);
      waits_.push_back(sum);
    }
  }

  void find_asides() {
    std::vector<char> leads(graph_.values.size(), 0);
    is_aside_.resize(order_.size());
    for (std::size_t i = order_.size(); i-- > 0;) {
      const graph::Op& op = graph_.op(order_[i]);
      const bool leads_on =
          waits_[i] > 0 || std::any_of(op.outputs.begin(), op.outputs.end(),
                                       [&](ValueId output) { return leads[output.index()] != 0; });
      is_aside_[i] = leads_on ? 0 : 1;
      if (leads_on)
        graph::for_each_value(op.arguments, [&](ValueId value) { leads[value.index()] = 1; });
    }
  }

  const graph::Graph& graph_;
  const graph::Sizes& sizes_;
  std::vector<OpId>& order_;
  const std::size_t early_;
  // By position in the order so far:
  std::vector<double> waits_;   // bytes of the exchanges that the operator waits for first
  std::vector<char> is_aside_;  // does no operator that waits depend on it?
  std::vector<std::size_t> positions_;
};

/// Is the operator's result laid out without gaps, in memory of its own?
bool makes_dense_result(const graph::Graph& graph, const graph::Value& value) {
  if (value.producer.is_none()) return false;
  const std::string& name = graph.op(value.producer).name;
  return (value.shape.empty() && !graph::is_view(name)) || name == "aten::mm" ||
         name == "aten::addmm" || name == "aten::bmm" || name == "aten::baddbmm";
}

/// A sum may overwrite its operand if nobody else reads that and it can be sent as it lies.
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

/// The wish to stop, known at any time, and the outputs that are exchanged, as they become ready.
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

/// A wish to stop that travels alone does so at the end.
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

Schedule schedule_alone(const graph::Graph& graph) {
  Schedule schedule = empty_schedule(graph);
  const graph::Reach live = graph::find_live(graph);
  for (std::size_t i = 0; i < graph.ops.size(); ++i)
    if (live.holds(i)) schedule.order.push_back(OpId(static_cast<std::int64_t>(i)));
  for (std::size_t o = 0; o < graph.outputs.size(); ++o)
    if (graph::is_wanted(graph.outputs[o])) schedule.direct.push_back(static_cast<std::int64_t>(o));
  return schedule;
}

Schedule keep_order(const graph::Graph& graph, const std::vector<OpNeeds>& ops,
                    const std::vector<std::optional<Exchange>>& outputs, Bytes bucket_bytes) {
  Schedule schedule = empty_schedule(graph);
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    schedule.order.push_back(OpId(static_cast<std::int64_t>(i)));
    for (const ValueId value : ops[i].summed) schedule.summed[value.index()] = 1;
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
  PutOff(graph, sizes, ops, schedule).run(outputs);
  find_in_place(graph, ops, schedule);
  schedule.buckets =
      fill_buckets(graph, find_items(graph, outputs, schedule), options.bucket_bytes);
  delay_stop(schedule);
  return schedule;
}

}  // namespace motley::synth
