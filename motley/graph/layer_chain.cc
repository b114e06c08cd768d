#include "motley/graph/layer_chain.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "motley/graph/layers.h"
#include "motley/graph/work.h"

namespace motley::graph {
namespace {

constexpr std::size_t kNone = kNoLayer;

/// Returns whether other layers are below this path.
bool has_below(const std::string& path, const std::vector<Layer>& layers) {
  return std::any_of(layers.begin(), layers.end(), [&](const Layer& other) {
    return other.path.size() > path.size() && other.path.starts_with(path + ".");
  });
}

/// Returns the layer of a parameter: "model.layers.3" for "model.layers.3.attn.weight",
/// "features.5.26" for "features.5.26.block.0.weight", "model.head" for "model.head.weight".
std::string layer_of_name(const std::string& name) {
  std::size_t begin = 0, numbered = 0;  // end of the path
  while (begin < name.size()) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const bool is_number =
        end > begin && std::all_of(name.begin() + static_cast<std::ptrdiff_t>(begin),
                                   name.begin() + static_cast<std::ptrdiff_t>(end),
                                   [](unsigned char c) { return std::isdigit(c) != 0; });
    if (is_number && end < name.size()) numbered = end;
    if (!is_number && numbered > 0) break;
    begin = end + 1;
  }
  if (numbered > 0) return name.substr(0, numbered);
  const std::size_t dot = name.rfind('.');
  return dot == std::string::npos ? name : name.substr(0, dot);
}

/// Returns the layer of the parameter that an operator reads, if it is more precise than the
/// operator's module, as for modules called under autocast; else "".
std::string layer_by_parameter(const Graph& graph, const Op& op) {
  std::string path;
  for_each_value(op.arguments, [&](ValueId value) {
    const Value& about = graph.value(value);
    if (about.role == ValueRole::kParameter && path.empty()) path = layer_of_name(about.name);
  });
  return op.module.empty() || path.starts_with(op.module + ".") ? path : "";
}

/// Returns each operator's layer by module, in the order of the forward pass; kNone without a
/// module. Operators beside a module's layers (embedding and head of "model") form a layer per
/// module.
std::vector<std::size_t> find_modules(const Graph& graph, LayerChain& chain) {
  std::map<std::string, std::vector<OpId>> groups;
  const std::vector<Layer> layers = find_layers(graph);
  for (const Layer& layer : layers) {
    std::set<std::string> vague = {""};  // modules
    for (const OpId id : layer.ops)
      if (const std::string path = layer_by_parameter(graph, graph.op(id)); !path.empty()) {
        groups[path].push_back(id);
        vague.insert(graph.op(id).module);
      }
    const bool is_apart = has_below(layer.path, layers);
    for (const OpId id : layer.ops)
      if (!vague.contains(graph.op(id).module))
        groups[is_apart ? graph.op(id).module : layer.path].push_back(id);
  }
  std::vector<std::pair<std::size_t, std::string>> order;  // first operator of the forward pass
  for (auto& [path, ops] : groups) std::sort(ops.begin(), ops.end());
  for (const auto& [path, ops] : groups)
    for (const OpId id : ops)
      if (graph.op(id).direction == Direction::kForward) {
        order.emplace_back(id.index(), path);
        break;
      }
  std::sort(order.begin(), order.end());
  std::vector<std::size_t> of(graph.ops.size(), kNone);
  for (const auto& [first, path] : order) {
    for (const OpId id : groups.at(path)) of[id.index()] = chain.names.size();
    chain.names.push_back(path);
  }
  return of;
}

class Chaining {
 public:
  Chaining(const Graph& graph, const std::vector<std::size_t>& modules,
           std::vector<std::size_t>& of)
      : graph_(graph), modules_(modules), of_(of) {}

  void run() {
    follow_operands();
    join_users();
    join_readers();
    for (std::size_t i = 0; i < graph_.ops.size(); ++i)
      if (is_forward(i) && of_[i] == kNone) of_[i] = 0;
    follow_operands();  // some of them are in later layers now
    put_off();
    place_backward(graph_, modules_, of_);
  }

 private:
  bool is_forward(std::size_t op) const { return graph_.ops[op].direction == Direction::kForward; }
  std::size_t layer_of(ValueId value) const {
    const OpId producer = graph_.value(value).producer;
    return producer.is_none() ? kNone : of_[producer.index()];
  }

  /// Moves forward operators to the layers of what they read, if later.
  void follow_operands() {
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      if (!is_forward(i)) continue;
      if (of_[i] == kNone) of_[i] = modules_[i];
      for_each_value(graph_.ops[i].arguments, [&](ValueId value) {
        const std::size_t at = layer_of(value);
        if (at != kNone && (of_[i] == kNone || of_[i] < at)) of_[i] = at;
      });
    }
  }

  /// Gives operators on parameters alone (a weight cast by autocast) to their first reader, so that
  /// each layer of a tied weight has its own cast and its part of the gradient.
  void join_users() {
    std::vector<char> is_made(graph_.ops.size(), 0);
    for (std::size_t i = 0; i < is_made.size(); ++i) {
      if (!is_forward(i)) continue;
      bool has_operand = false, is_alone = true;
      for_each_value(graph_.ops[i].arguments, [&](ValueId value) {
        const Value& about = graph_.value(value);
        has_operand = true;
        is_alone = is_alone && (about.role == ValueRole::kParameter ||
                                (!about.producer.is_none() && is_made[about.producer.index()]));
      });
      is_made[i] = has_operand && is_alone ? 1 : 0;
    }
    std::vector<std::size_t> first(graph_.ops.size(), kNone);  // reader's layer
    for (std::size_t i = graph_.ops.size(); i-- > 0;) {
      if (!is_forward(i)) continue;
      if (is_made[i] != 0 && first[i] != kNone) of_[i] = first[i];
      if (of_[i] == kNone) continue;
      for_each_value(graph_.ops[i].arguments, [&](ValueId value) {
        const OpId producer = graph_.value(value).producer;
        if (!producer.is_none())
          first[producer.index()] = std::min(first[producer.index()], of_[i]);
      });
    }
  }

  /// Gives operators of no module that read only sources, or such operators, to their first reader.
  void join_readers() {
    std::vector<char> is_free(graph_.ops.size(), 0);
    for (std::size_t i = 0; i < is_free.size(); ++i) is_free[i] = of_[i] == kNone ? 1 : 0;
    for (std::size_t i = graph_.ops.size(); i-- > 0;) {
      if (!is_forward(i) || of_[i] == kNone) continue;
      for_each_value(graph_.ops[i].arguments, [&](ValueId value) {
        const OpId producer = graph_.value(value).producer;
        if (producer.is_none() || is_free[producer.index()] == 0) return;
        of_[producer.index()] = std::min(of_[producer.index()], of_[i]);
      });
    }
  }

  /// Returns, by operator without a module, the first layer that would read it if others of its
  /// layer in between moved too. `readers` is by value.
  std::vector<std::size_t> find_latest(const std::vector<std::vector<std::size_t>>& readers) const {
    std::vector<std::size_t> latest(of_);
    for (std::size_t i = graph_.ops.size(); i-- > 0;) {
      if (!is_forward(i) || modules_[i] != kNone) continue;
      std::size_t first = kNone;
      for (const ValueId output : graph_.ops[i].outputs)
        for (const std::size_t reader : readers[output.index()])
          first = std::min(first, of_[reader] > of_[i] ? of_[reader] : latest[reader]);
      if (first != kNone) latest[i] = first;
    }
    return latest;
  }

  /// Returns whether an operator reads exactly one value made by another operator.
  bool reads_one(std::size_t op) const {
    std::set<ValueId> made;
    for_each_value(graph_.ops[op].arguments, [&](ValueId value) {
      if (!graph_.value(value).producer.is_none()) made.insert(value);
    });
    return made.size() == 1;
  }

  /// Moves forward operators without a module to their first reader if that reduces what passes
  /// between layers: a value that the reader's layer receives anyway (a residual) need not be sent
  /// again as a norm's and three casts, nor an encoder's result as one cast per layer of a decoder.
  void put_off() {
    std::vector<std::vector<std::size_t>> readers(graph_.values.size());
    for (std::size_t i = 0; i < graph_.ops.size(); ++i)
      if (is_forward(i))
        for_each_value(graph_.ops[i].arguments,
                       [&](ValueId value) { readers[value.index()].push_back(i); });
    const auto first_reader = [&](std::size_t op) {
      std::size_t first = kNone;
      for (const ValueId output : graph_.ops[op].outputs)
        for (const std::size_t reader : readers[output.index()])
          first = std::min(first, of_[reader]);
      return first;
    };
    const auto bytes = [&](ValueId value) {
      return value_bytes(graph_.value(value), {{"batch", 2}});
    };
    const auto given = [&](std::size_t op) {
      std::int64_t sum = 0;
      for (const ValueId output : graph_.ops[op].outputs) sum += bytes(output);
      return sum;
    };
    const std::vector<std::size_t> latest = find_latest(readers);
    // Whether all movable operators that read only this value pass on more than it.
    std::vector<char> is_known(graph_.values.size(), 0), is_less(graph_.values.size(), 0);
    const auto is_less_than_readers = [&](ValueId value) {
      if (std::exchange(is_known[value.index()], 1) != 0) return is_less[value.index()] != 0;
      std::int64_t sum = 0;
      for (const std::size_t reader : readers[value.index()])
        if (latest[reader] > layer_of(value) && reads_one(reader)) sum += given(reader);
      is_less[value.index()] = bytes(value) < sum ? 1 : 0;
      return is_less[value.index()] != 0;
    };
    for (std::size_t i = graph_.ops.size(); i-- > 0;) {
      if (!is_forward(i) || modules_[i] != kNone) continue;
      const std::size_t to = first_reader(i);
      if (to == kNone || to <= of_[i]) continue;
      std::int64_t instead = 0;
      for_each_value(graph_.ops[i].arguments, [&](ValueId value) {
        const OpId producer = graph_.value(value).producer;
        if (producer.is_none()) return;
        const std::vector<std::size_t>& others = readers[value.index()];
        const bool passes = std::any_of(others.begin(), others.end(), [&](std::size_t other) {
          return other != i && of_[other] >= to;
        });
        const bool follows = modules_[producer.index()] == kNone &&
                             std::all_of(others.begin(), others.end(), [&](std::size_t other) {
                               return other == i || of_[other] >= to;
                             });
        if (!passes && !follows && !(reads_one(i) && is_less_than_readers(value)))
          instead += bytes(value);
      });
      if (instead < given(i)) of_[i] = to;
    }
  }

  const Graph& graph_;
  const std::vector<std::size_t>& modules_;
  std::vector<std::size_t>& of_;
};

/// Returns whether an operator sums the gradients of a value's two readers. It belongs to their
/// layer, so that one gradient is passed to the layer before, not two.
bool adds_gradients(const Graph& graph, const Op& op) {
  bool all = op.full_name() == "aten::add.Tensor";
  for_each_value(op.arguments, [&](ValueId value) {
    const OpId producer = graph.value(value).producer;
    all = all && !producer.is_none() && graph.op(producer).direction != Direction::kForward;
  });
  return all;
}

}  // namespace

void place_backward(const Graph& graph, const std::vector<std::size_t>& modules,
                    std::vector<std::size_t>& of_op) {
  const auto is_forward = [&](std::size_t op) {
    return graph.ops[op].direction == Direction::kForward;
  };
  std::map<std::string, std::size_t> of_module;
  std::map<std::int64_t, std::size_t> of_number;
  for (std::size_t i = 0; i < graph.ops.size(); ++i)
    if (is_forward(i) && graph.ops[i].sequence) {
      std::size_t& last = of_number[*graph.ops[i].sequence];
      last = std::max(last, of_op[i]);
    }
  for (std::size_t i = 0; i < graph.ops.size(); ++i)
    if (is_forward(i) && modules[i] != kNone) {
      std::size_t& last = of_module[graph.ops[i].module];
      last = std::max(last, of_op[i]);
    }
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    if (is_forward(i)) continue;
    const auto known = of_module.find(graph.ops[i].module);
    std::size_t at = known != of_module.end() ? known->second : modules[i], saved = 0;
    if (adds_gradients(graph, graph.ops[i])) at = kNone;
    if (graph.ops[i].sequence)
      if (const auto found = of_number.find(*graph.ops[i].sequence); found != of_number.end())
        at = found->second;
    for_each_value(graph.ops[i].arguments, [&](ValueId value) {
      const OpId producer = graph.value(value).producer;
      if (producer.is_none()) return;
      const std::size_t there = of_op[producer.index()];
      if (is_forward(producer.index()))
        saved = std::max(saved, there);
      else
        at = std::min(at, there);
    });
    of_op[i] = at == kNone ? saved : at;
  }
}

LayerChain find_layer_chain(const Graph& graph) {
  LayerChain chain;
  const std::vector<std::size_t> modules = find_modules(graph, chain);
  if (chain.names.empty()) {
    chain.names = {graph.name};
    chain.of_op.assign(graph.ops.size(), 0);
    return chain;
  }
  chain.of_op.assign(graph.ops.size(), kNone);
  Chaining(graph, modules, chain.of_op).run();
  return chain;
}

}  // namespace motley::graph
