#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "motley/base/text.h"
#include "motley/graph/draws.h"
#include "motley/graph/graph_text.h"

namespace motley::graph {
namespace {

constexpr std::size_t kMostViolations = 20;
// Limit for all values and for all uses of values together, so that no sum over them overflows.
constexpr std::int64_t kMostBytes = std::int64_t{1} << 60;

std::string_view role_name(ValueRole role) {
  switch (role) {
    case ValueRole::kInput:
      return "input";
    case ValueRole::kParameter:
      return "parameter";
    case ValueRole::kBuffer:
      return "buffer";
    case ValueRole::kConstant:
      return "constant";
    case ValueRole::kTangent:
      return "tangent";
    case ValueRole::kActivation:
      break;
  }
  return "value";
}

/// Collects violations. A group of checks is skipped if an earlier one, on which it relies, fails.
class GraphVerifier {
 public:
  GraphVerifier(const Graph& graph, const std::string& name) : graph_(graph), name_(name) {}

  Result<void> verify() {
    check_sizes();
    check_definitions();
    if (violations_.empty()) {
      check_values();
      check_names();
      check_arguments();
      check_draws();
      check_outputs();
    }
    if (violations_.empty()) check_bytes();
    if (violations_.empty()) return {};
    return usage_error("graph.verify", join(violations_, "\n"));
  }

 private:
  template <typename... Parts>
  void violation(fmt::format_string<Parts...> format, Parts&&... parts) {
    if (violations_.size() == kMostViolations) violations_.push_back(name_ + ": and more");
    if (violations_.size() > kMostViolations) return;
    violations_.push_back(name_ + ": " + fmt::format(format, std::forward<Parts>(parts)...));
  }

  bool in_range(ValueId id) const { return !id.is_none() && id.index() < graph_.values.size(); }
  std::string describe(std::size_t id) const {
    const Value& value = graph_.values[id];
    return fmt::format("{} %{}{}{}", role_name(value.role), id, value.name.empty() ? "" : " ",
                       value.name.empty() ? "" : quote(value.name));
  }

  void check_sizes() {
    for (const NamedSize& size : graph_.sizes) {
      if (size.min < 1 || size.min > size.max) {
        violation("size '{}': found {} to {}, wanted 1 <= smallest <= largest", size.name, size.min,
                  size.max);
      }
      if (!smallest_.emplace(size.name, size.min).second) {
        violation("size '{}' is declared twice", size.name);
      }
      largest_.emplace(size.name, size.max);
    }
    if (!smallest_.contains("batch")) violation("size 'batch' is not declared");
  }

  /// Checks that ids count up from 0: leaves first, then the results of each operator in order. So
  /// each value has one definition, and a smaller id is defined earlier.
  void check_definitions() {
    std::size_t next = 0;
    while (next < graph_.values.size() && graph_.values[next].role != ValueRole::kActivation) {
      if (!graph_.values[next].producer.is_none()) {
        violation("{} has an operator that produces it", describe(next));
      }
      ++next;
    }
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      const Op& op = graph_.ops[i];
      const std::size_t first = next;
      for (const ValueId id : op.outputs) {
        const bool right = in_range(id) && id.index() == next &&
                           graph_.value(id).producer == OpId(i) &&
                           graph_.value(id).role == ValueRole::kActivation;
        if (!right) {
          violation("op {} ({}): found result %{}, wanted %{}, produced by this operator only", i,
                    op.full_name(), id.value, next);
          return;
        }
        ++next;
      }
      for_each_value(op.arguments, [&](ValueId id) {
        if (id.is_none() || id.index() >= first) {
          violation("op {} ({}): %{} is used before it is defined", i, op.full_name(), id.value);
        }
      });
    }
    if (next != graph_.values.size()) {
      violation("%{} is neither a leaf before the operators nor a result of one", next);
    }
  }

  bool check_symbols(const SizeExpr& expr, const std::string& where) {
    bool known = true;
    for (const std::string& symbol : expr.symbols()) {
      if (smallest_.contains(symbol)) continue;
      violation("{}: size '{}' is not declared", where, symbol);
      known = false;
    }
    return known;
  }

  void check_values() {
    for (std::size_t i = 0; i < graph_.values.size(); ++i) {
      const Value& value = graph_.values[i];
      if (value.dtype == DType::kNone) {
        if (value.role != ValueRole::kActivation || !value.shape.empty()) {
          violation("{}: only a result may have type none, without a shape", describe(i));
        }
        continue;
      }
      if (!check_shape(value, i)) continue;
      check_role(value, i);
    }
  }

  bool check_shape(const Value& value, std::size_t id) {
    bool right = true;
    for (const SizeExpr& size : value.shape) {
      if (!check_symbols(size, describe(id))) {
        right = false;
      } else if (!size.is_integer()) {
        violation("{}: dimension {} is not an integer", describe(id), size.text());
        right = false;
      } else if (size.evaluate_integer(smallest_) < 0 || size.evaluate_integer(largest_) < 0) {
        violation("{}: dimension {} is negative at {} size", describe(id), size.text(),
                  size.evaluate_integer(smallest_) < 0 ? "the smallest" : "the largest");
        right = false;
      }
    }
    return right;
  }

  void check_role(const Value& value, std::size_t id) {
    const bool stored = value.role == ValueRole::kParameter || value.role == ValueRole::kBuffer ||
                        value.role == ValueRole::kConstant;
    const bool fixed = std::all_of(value.shape.begin(), value.shape.end(),
                                   [](const SizeExpr& size) { return size.is_constant(); });
    if (stored && !fixed) violation("{}: its shape depends on a named size", describe(id));
    if (value.role == ValueRole::kInput &&
        (value.shape.empty() || value.shape[0] != SizeExpr::symbol("batch"))) {
      violation("{}: found dimension 0 {}, wanted batch", describe(id),
                value.shape.empty() ? "missing" : value.shape[0].text());
    }
    if (value.role != ValueRole::kActivation && is_complex(value.dtype)) {
      violation("{}: only a result may be complex", describe(id));
    }
    if (value.role == ValueRole::kTangent && !value.shape.empty()) {
      violation("{}: wanted a scalar", describe(id));
    }
    if (value.role != ValueRole::kParameter && (value.frozen || !value.tied.empty())) {
      violation("{}: only a parameter may be frozen or tied", describe(id));
    }
  }

  /// Inputs have a name space of their own: forward's arguments, not the state_dict.
  void check_names() {
    std::set<std::string_view> inputs, state;
    bool tangent = false;
    for (std::size_t i = 0; i < graph_.values.size(); ++i) {
      const Value& value = graph_.values[i];
      if (value.role == ValueRole::kActivation) continue;
      if (value.role == ValueRole::kTangent) {
        if (std::exchange(tangent, true)) violation("{}: there is one already", describe(i));
        continue;
      }
      if (value.name.empty()) violation("{}: has no name", describe(i));
      std::set<std::string_view>& names = value.role == ValueRole::kInput ? inputs : state;
      if (!names.insert(value.name).second) violation("{}: the name is taken", describe(i));
      for (const std::string& tied : value.tied) {
        if (!names.insert(tied).second) {
          violation("{}: the tied name {} is taken", describe(i), quote(tied));
        }
      }
    }
  }

  void check_arguments() {
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      const Op& op = graph_.ops[i];
      const std::string where = fmt::format("op {} ({})", i, op.full_name());
      if (op.outputs.empty()) violation("{}: has no results", where);
      check_list(op.arguments, where);
    }
  }

  /// Checks that draws have different numbers: equal ones would draw equal values.
  void check_draws() {
    std::set<std::int64_t> numbers;
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      const Op& op = graph_.ops[i];
      const std::string where = fmt::format("op {} ({})", i, op.full_name());
      if (is_random(op.name)) {
        violation(
            "{}: draws random numbers that do not follow from its place in the batch; "
            "export the model again",
            where);
      }
      if (!is_draw(op)) continue;
      const auto number = find_draw_number(op);
      if (!number) {
        violation("{}: its arguments and results are not those of a draw", where);
      } else if (!numbers.insert(*number).second) {
        violation("{}: draw {} is there already", where, *number);
      }
    }
  }

  void check_list(const SymbolicArguments& arguments, const std::string& where) {
    for (const SymbolicArgument& argument : arguments) {
      if (const auto* id = std::get_if<ValueId>(&argument.value)) {
        if (graph_.value(*id).dtype == DType::kNone) {
          violation("{}: uses %{}, which is undefined", where, id->value);
        }
      } else if (const auto* size = std::get_if<SizeArgument>(&argument.value)) {
        if (check_symbols(size->expr, where) && !size->expr.is_integer()) {
          violation("{}: size({}) is not an integer", where, size->expr.text());
        }
      } else if (const auto* number = std::get_if<SymbolicNumber>(&argument.value)) {
        check_symbols(number->expr, where);
      } else if (const auto* list = std::get_if<SymbolicArguments>(&argument.value)) {
        check_list(*list, where);
      }
    }
  }

  void check_bytes() {
    std::int64_t left = kMostBytes;
    const auto take = [&](ValueId id) {
      left -= std::min(left, value_bytes(graph_.value(id), largest_));
    };
    for (std::size_t i = 0; i < graph_.values.size(); ++i) take(ValueId(static_cast<int>(i)));
    for (const Op& op : graph_.ops) for_each_value(op.arguments, take);
    if (left == 0) violation("values of more than 2^60 bytes at the largest sizes");
  }

  void check_outputs() {
    std::size_t losses = 0;
    std::set<ValueId> owners;
    std::set<std::string_view> names;
    for (const Output& output : graph_.outputs) {
      if (!in_range(output.value) || graph_.value(output.value).dtype == DType::kNone) {
        violation("output %{} is not a defined value", output.value.value);
        continue;
      }
      const Value& value = graph_.value(output.value);
      if (output.kind == OutputKind::kLoss) {
        ++losses;
        if (!value.shape.empty() || !is_floating(value.dtype)) {
          violation("loss %{}: wanted a floating-point scalar", output.value.value);
        }
      }
      if (output.kind == OutputKind::kGradient) check_owner(output, ValueRole::kParameter, owners);
      if (output.kind == OutputKind::kUpdate) check_owner(output, ValueRole::kBuffer, owners);
      if (!output.name.empty() && !names.insert(output.name).second) {
        violation("two outputs have the name {}", quote(output.name));
      }
      if (output.kind == OutputKind::kMetric && (!value.shape.empty() || output.name.empty()))
        violation("metric %{}: wanted one number with a name", output.value.value);
    }
    const bool evaluates = has_kind(OutputKind::kMetric);
    if (evaluates && (has_kind(OutputKind::kGradient) || has_kind(OutputKind::kUpdate)))
      violation("a graph with metrics has gradients or updates");
    if (losses != 1) violation("found {} loss outputs, wanted one", losses);
  }

  bool has_kind(OutputKind kind) const {
    return std::any_of(graph_.outputs.begin(), graph_.outputs.end(),
                       [&](const Output& output) { return output.kind == kind; });
  }

  /// Checks a gradient and its parameter, or an update and its buffer.
  void check_owner(const Output& output, ValueRole role, std::set<ValueId>& owners) {
    const std::string_view what = output.kind == OutputKind::kGradient ? "gradient" : "update";
    if (!in_range(output.of) || graph_.value(output.of).role != role) {
      violation("{} %{}: is of no {}", what, output.value.value, role_name(role));
      return;
    }
    const Value& owner = graph_.value(output.of);
    const Value& value = graph_.value(output.value);
    if (!owners.insert(output.of).second) {
      violation("{} has two {}s", describe(output.of.index()), what);
    }
    if (owner.frozen) violation("{} is frozen but has a gradient", describe(output.of.index()));
    if (owner.dtype != value.dtype || owner.shape != value.shape) {
      violation("{} %{}: dtype or shape differ from {}", what, output.value.value,
                describe(output.of.index()));
    }
  }

  const Graph& graph_;
  const std::string& name_;
  Sizes smallest_, largest_;
  std::vector<std::string> violations_;
};

}  // namespace

Result<void> verify_graph(const Graph& graph, const std::string& name) {
  return GraphVerifier(graph, name).verify();
}

}  // namespace motley::graph
