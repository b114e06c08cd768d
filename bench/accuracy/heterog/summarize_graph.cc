// Writes the work of training steps, a row per variable: bench_summarize_graph FOLDER MODEL...
// writes FOLDER/NAME.csv for each and FOLDER/models.csv.
//
// Rows are in the order of first use. A row's forward work lasts from the variable's first use to
// the next variable's. Its backward work lasts from the preceding gradient to its own; `gradient`
// is the place in the order of readiness. Work before the first use or after the last gradient
// belongs to that row. Operators of at least kRidge operations per byte count by their operations,
// the others by their bytes, which are affine in the batch.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "motley/base/file.h"
#include "motley/graph/model_file.h"
#include "motley/graph/work.h"

namespace {

using namespace motley;
using namespace motley::graph;

/// Operations per byte where GPUs become bound by arithmetic: P100, V100 17, GTX 1080 Ti 23.
constexpr double kRidge = 18;
constexpr std::int64_t kFew = 8, kMany = 16;  ///< batches that the affine functions go through

struct Segment {
  int launches = 0;
  double flops = 0;        ///< per sample
  double fixed_bytes = 0;  ///< per step
  double bytes = 0;        ///< per sample
};

void join(Segment& into, const Segment& from) {
  into.launches += from.launches;
  into.flops += from.flops;
  into.fixed_bytes += from.fixed_bytes;
  into.bytes += from.bytes;
}

struct Variable {
  ValueId value;
  bool is_multiplied = false;  ///< used by more than look-ups
  double looked_up_bytes = 0;  ///< per sample
  std::size_t gradient = 0;
  Segment forward, backward;
};

double moved(const Work& work) {
  return static_cast<double>(work.bytes_read.value + work.bytes_written.value);
}

bool is_all_ones(const SymbolicArgument& argument) {
  const auto* list = std::get_if<SymbolicArguments>(&argument.value);
  return list != nullptr &&
         std::all_of(list->begin(), list->end(), [](const SymbolicArgument& item) {
           const auto* number = std::get_if<std::int64_t>(&item.value);
           return number != nullptr && *number == 1;
         });
}

/// Returns the multiplications that a library saves: dense 3 by 3 convolutions at stride 1 run by
/// minimal filtering of 2 by 2 tiles, with 16 products instead of 36 (Lavin and Gray, Fast
/// Algorithms for Convolutional Neural Networks, 2016).
double saving(const Graph& graph, const Op& op) {
  const bool is_backward = op.name == "aten::convolution_backward";
  if (!is_backward && op.name != "aten::convolution") return 1;
  const Value& weight = graph.value(std::get<ValueId>(op.arguments[is_backward ? 2 : 1].value));
  const std::size_t stride = is_backward ? 4 : 3, groups = is_backward ? 9 : 8;
  const auto* group_count = std::get_if<std::int64_t>(&op.arguments[groups].value);
  const bool is_dense = group_count != nullptr && *group_count == 1;
  const bool is_three =
      weight.shape.size() == 4 && weight.shape[2].text() == "3" && weight.shape[3].text() == "3";
  const bool is_plain = is_all_ones(op.arguments[stride]) && is_all_ones(op.arguments[stride + 2]);
  return is_dense && is_three && is_plain ? 36.0 / 16 : 1;
}

void add(const Graph& graph, OpId id, Segment& segment) {
  const Op& op = graph.op(id);
  const Work many = op_work(graph, id, {{"batch", kMany}});
  if (is_view(op.name) || moved(many) == 0) return;
  segment.launches += 1;
  if (many.flops.value >= kRidge * moved(many)) {
    segment.flops += many.flops.value / kMany / saving(graph, op);
    return;
  }
  const double few = moved(op_work(graph, id, {{"batch", kFew}}));
  const double slope = (moved(many) - few) / (kMany - kFew);
  segment.bytes += slope;
  segment.fixed_bytes += few - slope * kFew;
}

/// Returns the value behind a chain of views.
ValueId base_of(const Graph& graph, ValueId id) {
  while (!graph.value(id).producer.is_none()) {
    const Op& op = graph.op(graph.value(id).producer);
    if (!is_view(op.name)) break;
    id = std::get<ValueId>(op.arguments.at(0).value);
  }
  return id;
}

class Summary {
 public:
  explicit Summary(const Graph& graph) : graph_(graph) {
    for (const Output& output : graph.outputs) {
      if (output.kind != OutputKind::kGradient) continue;
      gradients_[base_of(graph, output.value)].push_back(output.of);
      position_[output.of] = kUnused;
    }
    for (std::size_t i = 0; i < graph.ops.size(); ++i) {
      const OpId id(static_cast<std::int64_t>(i));
      graph.op(id).direction == Direction::kForward ? forward(id) : backward(id);
    }
    join(variables_.at(last_).backward, pending_);
  }

  const std::vector<Variable>& variables() const { return variables_; }

 private:
  static constexpr std::size_t kUnused = static_cast<std::size_t>(-1);

  void forward(OpId id) {
    const Op& op = graph_.op(id);
    if (!is_view(op.name)) for_each_value(op.arguments, [&](ValueId value) { use(op, value); });
    add(graph_, id, variables_.empty() ? pending_ : variables_.back().forward);
  }

  void use(const Op& op, ValueId value) {
    const auto found = position_.find(base_of(graph_, value));
    if (found == position_.end()) return;
    if (found->second == kUnused) {
      found->second = variables_.size();
      variables_.push_back({.value = found->first});
      join(variables_.back().forward, std::exchange(pending_, {}));
    }
    Variable& variable = variables_[found->second];
    if (op.name != "aten::embedding") {
      variable.is_multiplied = true;
      return;
    }
    const Value& rows = graph_.value(op.outputs[0]);
    variable.looked_up_bytes += static_cast<double>(value_bytes(rows, {{"batch", kMany}}) -
                                                    value_bytes(rows, {{"batch", kFew}})) /
                                (kMany - kFew);
  }

  void backward(OpId id) {
    add(graph_, id, pending_);
    for (const ValueId output : graph_.op(id).outputs) {
      const auto found = gradients_.find(output);
      if (found == gradients_.end()) continue;
      for (const ValueId of : found->second) {
        last_ = position_.at(of);
        join(variables_.at(last_).backward, std::exchange(pending_, {}));
        variables_[last_].gradient = ready_++;
      }
    }
  }

  const Graph& graph_;
  std::map<ValueId, std::vector<ValueId>> gradients_;  // gradient -> variables
  std::map<ValueId, std::size_t> position_;            // variable -> index
  std::vector<Variable> variables_;
  Segment pending_;
  std::size_t ready_ = 0, last_ = 0;
};

std::string text(const Segment& segment) {
  const double fixed = std::abs(segment.fixed_bytes) < 1 ? 0 : segment.fixed_bytes;
  return fmt::format("{},{:.4g},{:.4g},{:.4g}", segment.launches, segment.flops / 1e6, fixed / 1e6,
                     segment.bytes / 1e6);
}

std::string table(const Graph& graph, const std::vector<Variable>& variables) {
  std::string text_of_all =
      "bytes,looked_up_bytes,gradient,forward_launches,forward_mflop,forward_fixed_mb,forward_mb,"
      "backward_launches,backward_mflop,backward_fixed_mb,backward_mb\n";
  for (const Variable& variable : variables) {
    text_of_all +=
        fmt::format("{},{},{},{},{}\n", value_bytes(graph.value(variable.value), {{"batch", 1}}),
                    variable.is_multiplied ? 0 : variable.looked_up_bytes, variable.gradient,
                    text(variable.forward), text(variable.backward));
  }
  return text_of_all;
}

std::string line(const Graph& graph, const std::vector<Variable>& variables) {
  Segment all;
  double parameters = 0, inputs = 0;
  for (const Variable& variable : variables) {
    join(all, variable.forward);
    join(all, variable.backward);
    parameters += static_cast<double>(value_bytes(graph.value(variable.value), {{"batch", 1}}));
  }
  for (const ValueId id : values_with_role(graph, ValueRole::kInput))
    inputs += static_cast<double>(value_bytes(graph.value(id), {{"batch", 1}}));
  return fmt::format("{},{},{:.0f},{:.0f},{},{:.4g},{:.4g},{:.4g}\n", graph.name, variables.size(),
                     parameters, inputs, all.launches, all.flops / 1e6, all.fixed_bytes / 1e6,
                     all.bytes / 1e6);
}

Result<std::string> summarize(const std::string& folder, const std::string& path) {
  MOTLEY_ASSIGN(const Model model, read_model(path));
  const Summary summary(model.graph);
  const std::string target = fmt::format("{}/{}.csv", folder, model.graph.name);
  MOTLEY_RETURN_IF_ERROR(write_file_atomic(target, table(model.graph, summary.variables())));
  return line(model.graph, summary.variables());
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 3) {
    fmt::print(stderr, "usage: bench_summarize_graph FOLDER MODEL...\n");
    return 2;
  }
  const std::string folder = arguments[1];
  std::string models = "model,variables,parameter_bytes,input_bytes,launches,mflop,fixed_mb,mb\n";
  for (int i = 2; i < count; ++i) {
    const auto line = summarize(folder, arguments[i]);
    if (!line) {
      fmt::print(stderr, "{}\n", line.error().message);
      return 1;
    }
    models += *line;
  }
  if (const auto done = write_file_atomic(folder + "/models.csv", models); !done) {
    fmt::print(stderr, "{}\n", done.error().message);
    return 1;
  }
  return 0;
}
