#include "motley/graph/short_graph.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <variant>

namespace motley::graph {
namespace {

bool is_like(const Value& a, const Value& b) {
  return a.role == b.role && a.dtype == b.dtype && a.shape == b.shape && a.frozen == b.frozen;
}

class Shortening {
 public:
  Shortening(const Graph& graph, const LayerChain& chain)
      : graph_(graph), chain_(chain), ops_(chain.names.size()), place_(graph.ops.size()) {
    for (std::size_t i = 0; i < graph.ops.size(); ++i) {
      place_[i] = ops_[chain.of_op[i]].size();
      ops_[chain.of_op[i]].push_back(i);
    }
  }

  /// Returns none if nothing can be left out.
  std::optional<ShortGraph> run(std::size_t kept) {
    find_run();
    if (last_ + 1 - first_ <= kept) return std::nullopt;
    gap_ = first_ + kept - 1;
    left_out_ = last_ + 1 - first_ - kept;
    choose_values();
    add_values();
    if (!add_ops() || !add_outputs()) return std::nullopt;
    stand_in();
    return std::move(made_);
  }

 private:
  std::size_t layer_of(OpId op) const { return chain_.of_op[op.index()]; }
  bool is_left_out(std::size_t layer) const { return layer >= gap_ && layer < gap_ + left_out_; }

  void find_run() {
    std::size_t first = 0;
    for (std::size_t l = 1; l <= ops_.size(); ++l) {
      if (l < ops_.size() && are_identical(l - 1)) continue;
      if (l - 1 - first > last_ - first_) {
        first_ = first;
        last_ = l - 1;
      }
      first = l;
    }
  }

  bool are_identical(std::size_t layer) {
    const std::vector<std::size_t>&one = ops_[layer], &next = ops_[layer + 1];
    if (one.size() != next.size() || one.empty()) return false;
    partners_.clear();
    for (std::size_t i = 0; i < one.size(); ++i) {
      const Op &a = graph_.ops[one[i]], &b = graph_.ops[next[i]];
      if (a.name != b.name || a.overload != b.overload || a.direction != b.direction ||
          a.outputs.size() != b.outputs.size() || !are_identical(a.arguments, b.arguments, layer))
        return false;
      for (std::size_t o = 0; o < a.outputs.size(); ++o)
        if (!is_like(graph_.value(a.outputs[o]), graph_.value(b.outputs[o]))) return false;
    }
    return true;
  }

  bool are_identical(const SymbolicArguments& a, const SymbolicArguments& b, std::size_t layer) {
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size(); ++i) {
      const auto *value = std::get_if<ValueId>(&a[i].value),
                 *other = std::get_if<ValueId>(&b[i].value);
      const auto *list = std::get_if<SymbolicArguments>(&a[i].value),
                 *others = std::get_if<SymbolicArguments>(&b[i].value);
      if (value != nullptr && other != nullptr) {
        if (!are_identical(*value, *other, layer)) return false;
      } else if (list != nullptr && others != nullptr) {
        if (!are_identical(*list, *others, layer)) return false;
      } else if (!(a[i] == b[i])) {
        return false;
      }
    }
    return true;
  }

  /// Compares what the layer and the next one read at the same position.
  bool are_identical(ValueId value, ValueId next, std::size_t layer) {
    if (value == next) return true;
    if (!is_like(graph_.value(value), graph_.value(next))) return false;
    const OpId by = graph_.value(value).producer, next_by = graph_.value(next).producer;
    if (by.is_none() || next_by.is_none())
      return by.is_none() && next_by.is_none() &&
             partners_.try_emplace(value, next).first->second == next;
    if (layer_of(by) + 1 != layer_of(next_by)) return false;
    // Outside the run only the positions in adjacent layers matter, for its first and last layer.
    const std::size_t size = ops_[layer].size();
    return ops_[layer_of(by)].size() != size || ops_[layer_of(next_by)].size() != size ||
           (place_[by.index()] == place_[next_by.index()] &&
            output_of(by, value) == output_of(next_by, next));
  }

  std::size_t output_of(OpId op, ValueId value) const {
    const auto& outputs = graph_.op(op).outputs;
    return static_cast<std::size_t>(std::find(outputs.begin(), outputs.end(), value) -
                                    outputs.begin());
  }

  /// Leaves out sources that only layers in the gap read.
  void choose_values() {
    std::vector<char> is_read(graph_.values.size(), 0), is_kept(graph_.values.size(), 0);
    for (std::size_t i = 0; i < graph_.ops.size(); ++i)
      for_each_value(graph_.ops[i].arguments, [&](ValueId value) {
        is_read[value.index()] = 1;
        if (!is_left_out(chain_.of_op[i])) is_kept[value.index()] = 1;
      });
    has_.assign(graph_.values.size(), 0);
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      const OpId by = graph_.values[v].producer;
      has_[v] = by.is_none() ? is_kept[v] != 0 || is_read[v] == 0 : !is_left_out(layer_of(by));
    }
  }

  void add_values() {
    made_.of_value.assign(graph_.values.size(), ValueId());
    made_.graph.name = graph_.name;
    made_.graph.sizes = graph_.sizes;
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      if (has_[v] == 0) continue;
      made_.of_value[v] = ValueId(made_.graph.values.size());
      made_.graph.values.push_back(graph_.values[v]);
    }
  }

  /// Returns what a reader reads in place of a value: the value at its position beyond the gap.
  ValueId find_value(ValueId value, std::size_t reader) const {
    const OpId by = graph_.value(value).producer;
    if (has_[value.index()] != 0) return made_.of_value[value.index()];
    if (by.is_none()) return {};
    const std::size_t layer = layer_of(by);
    if (reader > layer && layer < first_ + left_out_) return {};
    if (reader < layer && layer + left_out_ > last_) return {};
    const std::size_t there = reader > layer ? layer - left_out_ : layer + left_out_;
    if (is_left_out(there)) return {};
    const Op& like = graph_.ops[ops_[there][place_[by.index()]]];
    return made_.of_value[like.outputs[output_of(by, value)].index()];
  }

  bool translate(SymbolicArguments& arguments, std::size_t layer) const {
    for (SymbolicArgument& argument : arguments) {
      if (auto* list = std::get_if<SymbolicArguments>(&argument.value)) {
        if (!translate(*list, layer)) return false;
      } else if (auto* value = std::get_if<ValueId>(&argument.value)) {
        *value = find_value(*value, layer);
        if (value->is_none()) return false;
        const OpId by = made_.graph.value(*value).producer;
        if (made_.graph.value(*value).role == ValueRole::kActivation && is_later(by)) return false;
      }
    }
    return true;
  }

  bool is_later(OpId by) const { return made_.of_op[by.index()].is_none(); }

  bool add_ops() {
    made_.of_op.assign(graph_.ops.size(), OpId());
    std::vector<std::pair<ValueId, OpId>> producers;
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      const std::size_t layer = chain_.of_op[i];
      if (is_left_out(layer)) continue;
      Op op = graph_.ops[i];
      if (!translate(op.arguments, layer)) return false;
      const OpId id(made_.graph.ops.size());
      for (ValueId& output : op.outputs) {
        output = made_.of_value[output.index()];
        producers.emplace_back(output, id);
      }
      made_.of_op[i] = id;
      made_.whole_op.emplace_back(i);
      made_.graph.ops.push_back(std::move(op));
    }
    for (const auto& [value, op] : producers) made_.graph.values[value.index()].producer = op;
    return true;
  }

  /// Outputs of a layer are left out with it; the loss must remain.
  bool add_outputs() {
    for (Output output : graph_.outputs) {
      const bool is_here = has_[output.value.index()] != 0;
      if (!output.of.is_none() && (has_[output.of.index()] != 0) != is_here) return false;
      if (!is_here && output.kind == OutputKind::kLoss) return false;
      if (!is_here) continue;
      output.value = made_.of_value[output.value.index()];
      if (!output.of.is_none()) output.of = made_.of_value[output.of.index()];
      made_.graph.outputs.push_back(std::move(output));
    }
    return true;
  }

  /// Lets the layer before the gap represent all layers in it.
  void stand_in() {
    for (std::size_t l = 0; l < ops_.size(); ++l) {
      made_.of_layer.push_back(is_left_out(l) ? gap_ - 1 : l);
      for (std::size_t i = 0; is_left_out(l) && i < ops_[l].size(); ++i)
        stand_in(ops_[gap_ - 1][i], ops_[l][i]);
    }
    made_.op_count.assign(made_.graph.ops.size(), 0);
    for (const OpId op : made_.of_op) ++made_.op_count[op.index()];
    made_.value_count.assign(made_.graph.values.size(), 0);
    for (const ValueId value : made_.of_value)
      if (!value.is_none()) ++made_.value_count[value.index()];
    made_.left_out = left_out_;
  }

  void stand_in(std::size_t op, std::size_t other) {
    made_.of_op[other] = made_.of_op[op];
    const Op &here = graph_.ops[op], &there = graph_.ops[other];
    for (std::size_t o = 0; o < here.outputs.size(); ++o)
      made_.of_value[there.outputs[o].index()] = made_.of_value[here.outputs[o].index()];
    std::vector<ValueId> read;
    for_each_value(here.arguments, [&](ValueId value) { read.push_back(value); });
    std::size_t next = 0;
    for_each_value(there.arguments, [&](ValueId value) {
      ValueId& known = made_.of_value[value.index()];
      if (known.is_none()) known = made_.of_value[read[next].index()];
      ++next;
    });
  }

  const Graph& graph_;
  const LayerChain& chain_;
  std::vector<std::vector<std::size_t>> ops_;  // by layer
  std::vector<std::size_t> place_;             // by operator: position in its layer
  std::size_t first_ = 0, last_ = 0;           // layers of the run
  std::size_t gap_ = 0, left_out_ = 0;         // first layer and number of layers
  std::map<ValueId, ValueId> partners_;        // sources of a layer: those of the next one
  std::vector<char> has_;                      // by value: is it in the short graph?
  ShortGraph made_;
};

ShortGraph all_of(const Graph& graph, const LayerChain& chain) {
  ShortGraph all{graph, {}, {}, {}, {}, {}, {}, 0};
  for (std::size_t i = 0; i < graph.ops.size(); ++i) all.of_op.emplace_back(i);
  all.whole_op = all.of_op;
  for (std::size_t v = 0; v < graph.values.size(); ++v) all.of_value.emplace_back(v);
  for (std::size_t l = 0; l < chain.names.size(); ++l) all.of_layer.push_back(l);
  all.op_count.assign(graph.ops.size(), 1);
  all.value_count.assign(graph.values.size(), 1);
  return all;
}

}  // namespace

ShortGraph shorten(const Graph& graph, const LayerChain& chain, std::size_t kept) {
  if (auto found = Shortening(graph, chain).run(kept)) return *std::move(found);
  return all_of(graph, chain);
}

}  // namespace motley::graph
