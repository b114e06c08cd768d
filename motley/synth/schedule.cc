#include "motley/synth/schedule.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "motley/graph/work.h"

namespace motley::synth {
namespace {

bool is_wanted(const graph::Output& output) { return output.kind != graph::OutputKind::kExtra; }

/// Marks every operator that a value depends on.
class Reach {
 public:
  explicit Reach(const graph::Graph& graph) : graph_(graph), marked_(graph.ops.size(), 0) {}

  void add(ValueId value) { mark_producer(value); }
  /// Follows the marks backwards; graph order makes one pass enough.
  void close() {
    for (std::size_t i = marked_.size(); i-- > 0;)
      if (marked_[i])
        graph::for_each_value(graph_.ops[i].arguments, [&](ValueId v) { mark_producer(v); });
  }
  bool holds(std::size_t op) const { return marked_[op] != 0; }

 private:
  void mark_producer(ValueId value) {
    const OpId producer = graph_.value(value).producer;
    if (!producer.is_none()) marked_[producer.index()] = 1;
  }
  const graph::Graph& graph_;
  std::vector<char> marked_;
};

Reach find_live(const graph::Graph& graph) {
  Reach live(graph);
  for (const graph::Output& output : graph.outputs)
    if (is_wanted(output)) live.add(output.value);
  live.close();
  return live;
}

bool counts_labels(const FormTable& forms, std::size_t op) {
  return forms.ops[op].rewrite == Rewrite::kNllMean;
}

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

void order_operators(const graph::Graph& graph, const FormTable& forms, Schedule& schedule) {
  const Reach live = find_live(graph);
  const std::vector<char> early = find_early_values(graph);
  const auto is_early = [&](ValueId v) { return early[v.index()] != 0; };
  Reach first(graph);
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    if (!live.holds(i)) continue;
    for (const ValueId value : forms.ops[i].summed) {
      schedule.summed[value.index()] = 1;
      if (is_early(value)) first.add(value);
    }
    if (!counts_labels(forms, i)) continue;
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

/// A sum may overwrite its operand if that is a scalar of its own that nobody else reads.
void find_in_place(const graph::Graph& graph, const FormTable& forms, Schedule& schedule) {
  std::vector<char> read(graph.values.size(), 0);
  for (const graph::Output& output : graph.outputs)
    if (is_wanted(output)) read[output.value.index()] = 1;
  for (const OpId id : schedule.order) {
    const std::vector<ValueId>& summed = forms.ops[id.index()].summed;
    graph::for_each_value(graph.op(id).arguments, [&](ValueId v) {
      if (std::find(summed.begin(), summed.end(), v) == summed.end()) read[v.index()] = 1;
    });
  }
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const graph::Value& value = graph.values[v];
    schedule.in_place[v] = schedule.summed[v] && !read[v] && value.shape.empty() &&
                           !graph::is_view(graph.op(value.producer).name);
  }
}

/// An item and the position in the order from which it can travel.
struct ReadyItem {
  std::int64_t ready = -1;
  BucketItem item;
};

std::vector<ReadyItem> find_items(const graph::Graph& graph, const FormTable& forms,
                                  Schedule& schedule) {
  std::vector<std::int64_t> position(graph.ops.size(), -1);
  for (std::size_t i = 0; i < schedule.order.size(); ++i)
    position[schedule.order[i].index()] = static_cast<std::int64_t>(i);
  std::vector<ReadyItem> items;
  for (std::size_t o = 0; o < graph.outputs.size(); ++o) {
    const graph::Output& output = graph.outputs[o];
    if (!is_wanted(output)) continue;
    const auto index = static_cast<std::int64_t>(o);
    const bool partial = forms.values[output.value.index()].kind == FormKind::kPartial;
    if (!partial || schedule.summed[output.value.index()]) {
      schedule.direct.push_back(index);
      continue;
    }
    items.push_back({position[graph.value(output.value).producer.index()], {index, output.value}});
  }
  std::stable_sort(items.begin(), items.end(),
                   [](const ReadyItem& a, const ReadyItem& b) { return a.ready < b.ready; });
  return items;
}

void fill_buckets(const graph::Graph& graph, const std::vector<ReadyItem>& items,
                  Bytes bucket_bytes, Schedule& schedule) {
  struct Open {
    std::size_t bucket;
    std::int64_t bytes;
  };
  std::map<DType, Open> open;
  const auto start = [&](DType dtype) {
    open[dtype] = {schedule.buckets.size(), 0};
    schedule.buckets.push_back({dtype, {}, -1});
  };
  // The wish to stop is known at any time: it opens the first bucket of its dtype.
  start(DType::kF32);
  schedule.buckets[0].items.push_back({});
  for (const ReadyItem& item : items) {
    const graph::Value& value = graph.value(item.item.value);
    const std::int64_t bytes = graph::value_bytes(value, {});
    const auto found = open.find(value.dtype);
    if (found == open.end() ||
        (found->second.bytes > 0 && found->second.bytes + bytes > bucket_bytes.value))
      start(value.dtype);
    Open& current = open[value.dtype];
    current.bytes += bytes;
    Bucket& bucket = schedule.buckets[current.bucket];
    bucket.items.push_back(item.item);
    bucket.ready = std::max(bucket.ready, item.ready);
  }
  Bucket& first = schedule.buckets[0];
  if (first.items.size() == 1) first.ready = static_cast<std::int64_t>(schedule.order.size()) - 1;
  std::stable_sort(schedule.buckets.begin(), schedule.buckets.end(),
                   [](const Bucket& a, const Bucket& b) { return a.ready < b.ready; });
}

}  // namespace

Schedule schedule_alone(const graph::Graph& graph) {
  Schedule schedule;
  schedule.summed.resize(graph.values.size(), 0);
  schedule.in_place.resize(graph.values.size(), 0);
  const Reach live = find_live(graph);
  for (std::size_t i = 0; i < graph.ops.size(); ++i)
    if (live.holds(i)) schedule.order.push_back(OpId(static_cast<std::int64_t>(i)));
  for (std::size_t o = 0; o < graph.outputs.size(); ++o)
    if (is_wanted(graph.outputs[o])) schedule.direct.push_back(static_cast<std::int64_t>(o));
  return schedule;
}

Schedule schedule_group(const graph::Graph& graph, const FormTable& forms, Bytes bucket_bytes) {
  Schedule schedule;
  schedule.summed.resize(graph.values.size(), 0);
  schedule.in_place.resize(graph.values.size(), 0);
  order_operators(graph, forms, schedule);
  find_in_place(graph, forms, schedule);
  fill_buckets(graph, find_items(graph, forms, schedule), bucket_bytes, schedule);
  return schedule;
}

}  // namespace motley::synth
