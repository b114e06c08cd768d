#include "motley/search/spmd/space.h"

#include <algorithm>
#include <array>
#include <deque>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "motley/graph/reach.h"
#include "motley/plan/shares.h"
#include "motley/synth/ranks/lower_sharded.h"

namespace motley::search {
namespace {

using graph::Form;
using graph::FormKind;
using graph::Strategy;

constexpr std::size_t kMostForms = 8;    // of a value, besides whole and partial
constexpr std::size_t kMostSumWays = 4;  // of an operator: ways to pass terms on

bool has_empty_part(const std::vector<double>& shares, std::int64_t extent) {
  const std::vector<std::int64_t> parts = plan::round_shares(shares, extent);
  return std::find(parts.begin(), parts.end(), 0) != parts.end();
}

/// Operators at which splits begin, in order: first those that fix their neighbours' cuts.
constexpr std::array<std::string_view, 16> kOrigins = {"motley::attention",
                                                       "motley::attention_backward",
                                                       "aten::bmm",
                                                       "aten::convolution",
                                                       "aten::embedding",
                                                       "aten::mm",
                                                       "aten::addmm",
                                                       "aten::_addmm_activation",
                                                       "aten::baddbmm",
                                                       "aten::topk",
                                                       "aten::gather",
                                                       "aten::convolution_backward",
                                                       "aten::embedding_dense_backward",
                                                       "aten::index",
                                                       "aten::linear",
                                                       "aten::matmul"};

class SpaceBuilder {
 public:
  SpaceBuilder(const graph::Graph& graph, std::int64_t global_batch,
               const std::vector<double>& shares)
      : graph_(graph), shares_(shares) {
    space_.global_batch = global_batch;
    space_.rules = synth::find_rules(graph, global_batch);
    space_.op_count.assign(graph.ops.size(), 1);
    space_.value_count.assign(graph.values.size(), 1);
  }

  SpmdSpace build() {
    space_.is_needed = graph::find_live(graph_).marks();
    find_readers();
    find_shapes();
    const std::size_t values = graph_.values.size();
    forms_.resize(values);
    space_.ways.resize(graph_.ops.size());
    space_.kept.resize(values);
    for (std::size_t i = 0; i < graph_.ops.size(); ++i)
      if (space_.is_needed[i]) space_.ways[i].push_back(whole_strategy(space_.rules[i]));
    begin_at_inputs();
    begin_at_origins();
    add_sums();
    find_kept();
    find_kinds();
    return std::move(space_);
  }

 private:
  void find_readers() {
    space_.readers.resize(graph_.values.size());
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      if (!space_.is_needed[i]) continue;
      const graph::ShardingRule& rule = space_.rules[i];
      for (std::size_t o = 0; o < rule.operands.size(); ++o) {
        const int operand = static_cast<int>(o);
        if (std::find(rule.ignored.begin(), rule.ignored.end(), operand) != rule.ignored.end())
          continue;
        space_.readers[rule.operands[o].index()].push_back(
            {OpId(static_cast<std::int64_t>(i)), operand});
      }
    }
    for (std::size_t o = 0; o < graph_.outputs.size(); ++o)
      if (graph::is_wanted(graph_.outputs[o]))
        space_.readers[graph_.outputs[o].value.index()].push_back({OpId(), static_cast<int>(o)});
  }

  void find_shapes() {
    const graph::Sizes sizes{{"batch", space_.global_batch}};
    for (const graph::Value& value : graph_.values) {
      std::vector<std::int64_t>& shape = space_.shapes.emplace_back();
      for (const graph::SizeExpr& size : value.shape) shape.push_back(size.evaluate_integer(sizes));
    }
  }

  bool add_way(std::size_t op, const std::optional<Strategy>& way) {
    if (!way) return false;
    std::vector<Strategy>& ways = space_.ways[op];
    if (std::find(ways.begin(), ways.end(), *way) != ways.end()) return true;
    const OpId id(static_cast<std::int64_t>(op));
    if (way->factor >= 0) {
      const std::int64_t size =
          space_.rules[op].factors[static_cast<std::size_t>(way->factor)].size;
      const std::int64_t extent = size / (way->outer * way->inner);
      if (!space_.has_empty.contains(extent))
        space_.has_empty[extent] = has_empty_part(shares_, extent);
    }
    if (!synth::can_lower(graph_, id, space_.rules[op], *way, shares_)) return false;
    ways.push_back(*way);
    for (std::size_t o = 0; o < way->operands.size(); ++o)
      note(space_.rules[op].operands[o], way->operands[o]);
    for (std::size_t r = 0; r < way->results.size(); ++r)
      note(graph_.ops[op].outputs[r], way->results[r]);
    return true;
  }

  void note(ValueId value, const Form& form) {
    if (form.kind != FormKind::kSharded) return;
    std::vector<Form>& forms = forms_[value.index()];
    if (forms.size() >= kMostForms || std::find(forms.begin(), forms.end(), form) != forms.end())
      return;
    forms.push_back(form);
    news_.emplace_back(value, form);
  }

  /// Makes all neighbours of values in new forms follow them.
  void spread() {
    while (!news_.empty()) {
      const auto [value, form] = news_.front();
      news_.pop_front();
      for (const Reader& reader : space_.readers[value.index()])
        if (!reader.op.is_none())
          add_way(reader.op.index(), follow(space_.rules[reader.op.index()], reader.operand, form));
      const OpId producer = graph_.value(value).producer;
      if (producer.is_none() || !space_.is_needed[producer.index()]) continue;
      const auto& outputs = graph_.op(producer).outputs;
      const auto result = std::find(outputs.begin(), outputs.end(), value) - outputs.begin();
      add_way(producer.index(),
              follow_result(space_.rules[producer.index()], static_cast<int>(result), form));
    }
  }

  void begin_at_inputs() {
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      const ValueId id(static_cast<std::int64_t>(v));
      if (graph_.value(id).role == graph::ValueRole::kInput)
        note(id, synth::input_form(graph_, id, space_.global_batch));
    }
    spread();
  }

  void begin_at_origins() {
    for (const std::string_view name : kOrigins)
      for (std::size_t i = 0; i < graph_.ops.size(); ++i)
        if (space_.is_needed[i] && graph_.ops[i].name == name) begin_at(i);
  }

  void begin_at(std::size_t op) {
    const graph::ShardingRule& rule = space_.rules[op];
    for (std::size_t f = 0; f < rule.factors.size(); ++f) {
      const int factor = static_cast<int>(f);
      const bool has_way = std::any_of(space_.ways[op].begin(), space_.ways[op].end(),
                                       [&](const Strategy& way) { return way.factor == factor; });
      if (has_way || rule.factors[f].size < 2) continue;
      add_way(op, split_strategy(rule, factor));
      spread();
    }
  }

  /// Adds ways to pass terms on where an operand can be a sum of terms.
  void add_sums() {
    std::vector<char> can_be_partial(graph_.values.size(), 0);
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      if (!space_.is_needed[i]) continue;
      std::size_t added = 0;
      for (const Strategy& way : linear_strategies(space_.rules[i])) {
        if (added == kMostSumWays) break;
        bool has_partial = false;
        for (std::size_t o = 0; o < way.operands.size(); ++o)
          has_partial = has_partial || (way.operands[o] == graph::kPartialForm &&
                                        can_be_partial[space_.rules[i].operands[o].index()]);
        if (has_partial && add_way(i, way)) ++added;
      }
      for (const Strategy& way : space_.ways[i])
        for (std::size_t r = 0; r < way.results.size(); ++r)
          if (way.results[r] == graph::kPartialForm)
            can_be_partial[graph_.ops[i].outputs[r].index()] = 1;
    }
    news_.clear();
  }

  /// Finds forms of sources: inputs are split by samples, a parameter may be kept as any reader
  /// needs it, all else is whole.
  void find_kept() {
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      const ValueId id(static_cast<std::int64_t>(v));
      const graph::Value& value = graph_.value(id);
      if (value.role == graph::ValueRole::kActivation) continue;
      std::vector<Form>& kept = space_.kept[v];
      if (value.role == graph::ValueRole::kInput) {
        kept.push_back(synth::input_form(graph_, id, space_.global_batch));
        continue;
      }
      kept.push_back(graph::kWholeForm);
      if (value.role == graph::ValueRole::kParameter && !value.frozen)
        kept.insert(kept.end(), forms_[v].begin(), forms_[v].end());
    }
  }

  std::string kind_text(std::size_t op) const {
    const graph::Op& about = graph_.ops[op];
    std::string text = about.full_name() + "|" + print_rule(space_.rules[op]) + "|";
    const auto add_value = [&](ValueId id) {
      text += dtype_name(graph_.value(id).dtype);
      for (const std::int64_t size : space_.shapes[id.index()]) text += "," + std::to_string(size);
      text += ";";
    };
    graph::for_each_value(about.arguments, add_value);
    for (const ValueId id : about.outputs) add_value(id);
    for (const Strategy& way : space_.ways[op]) {
      text += "|" + std::to_string(way.factor);
      for (const Form& form : way.operands) text += print_form(form);
      text += ">";
      for (const Form& form : way.results) text += print_form(form);
    }
    return text;
  }

  void find_kinds() {
    std::unordered_map<std::string, int> known;
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      const int next = static_cast<int>(known.size());
      space_.kind_of.push_back(
          space_.is_needed[i] ? known.try_emplace(kind_text(i), next).first->second : -1);
    }
    std::map<std::pair<DType, std::vector<std::int64_t>>, int> kinds;
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      const int next = static_cast<int>(kinds.size());
      space_.value_kind.push_back(
          kinds.try_emplace({graph_.values[v].dtype, space_.shapes[v]}, next).first->second);
    }
  }

  const graph::Graph& graph_;
  const std::vector<double>& shares_;
  SpmdSpace space_;
  std::vector<std::vector<Form>> forms_;  // by value: sharded ones
  std::deque<std::pair<ValueId, Form>> news_;
};

}  // namespace

bool holds_for(const SpmdSpace& space, const std::vector<double>& shares) {
  return std::all_of(space.has_empty.begin(), space.has_empty.end(), [&](const auto& known) {
    return has_empty_part(shares, known.first) == known.second;
  });
}

std::int64_t extent_of(const SpmdSpace& space, OpId op, const Strategy& way) {
  const auto factor = static_cast<std::size_t>(way.factor);
  return space.rules[op.index()].factors[factor].size / (way.outer * way.inner);
}

SpmdSpace find_space(const graph::Graph& graph, std::int64_t global_batch,
                     const std::vector<double>& shares) {
  return SpaceBuilder(graph, global_batch, shares).build();
}

}  // namespace motley::search
