#include "motley/synth/ranks/accumulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <regex>
#include <string>
#include <tuple>
#include <utility>

#include "motley/base/check.h"
#include "motley/graph/draws.h"
#include "motley/graph/reach.h"
#include "motley/synth/operators/batch_norm.h"
#include "motley/synth/ranks/sample_sharding.h"
#include "motley/synth/ranks/sharding_rules.h"

namespace motley::synth {
namespace {

using graph::Form;
using graph::FormKind;
using graph::Graph;
using graph::Op;
using graph::ShardingRule;
using graph::SizeArgument;
using graph::SizeExpr;
using graph::Strategy;
using graph::SymbolicArgument;
using graph::SymbolicArguments;
using graph::Value;

constexpr std::string_view kBatch = "batch";

bool is_mean_loss(const Op& op) {
  const auto* reduction =
      op.arguments.size() > 3 ? std::get_if<std::int64_t>(&op.arguments[3].value) : nullptr;
  return is_nll(op) && reduction != nullptr && *reduction == kMeanReduction;
}

SizeExpr parsed_size(const std::string& text) {
  auto parsed = graph::parse_size_expr(text);
  MOTLEY_CHECK(parsed.has_value());
  return std::move(*parsed);
}

/// The expression with something else in place of `batch`.
SizeExpr with_batch(const SizeExpr& expr, const std::string& instead) {
  if (!expr.depends_on(kBatch)) return expr;
  static const std::regex kName("\\bbatch\\b");
  return parsed_size(std::regex_replace(expr.text(), kName, instead));
}

/// The expression with `times` batches for each.
SizeExpr of_all(const SizeExpr& expr, std::int64_t times) {
  return with_batch(expr, fmt::format("({}*{})", kBatch, times));
}

/// What becomes of an operator.
enum class Fate {
  kDropped,  ///< nothing that is wanted depends on it
  kOnce,     ///< works on no samples
  kEach,     ///< a copy for each micro-batch
  kMean,     ///< the same, of whose results each counts 1 / micro_batches
  kNllMean,  ///< a copy that sums, divided by the labels of all
  kNumbers,  ///< a copy that counts from the micro-batch's first row
  kOwnRows,  ///< a copy that takes rows by their own numbers, less that of its first
};

bool takes_rows_by_number(const Op& op) {
  return op.name == "aten::index" || op.name == "aten::_unsafe_index" ||
         op.name == "aten::index_put" || op.name == "aten::_unsafe_index_put";
}

/// Where an arange by ones begins; none: a number that depends on the batch.
std::optional<std::int64_t> first_number(const Op& op) {
  if (op.overload.empty()) return 0;
  const auto* start = std::get_if<std::int64_t>(&op.arguments[0].value);
  return start == nullptr ? std::nullopt : std::optional(*start);
}

class Accumulator {
 public:
  /// Terms: of replicas, as accumulate_replicas says; sums: as accumulate says.
  enum class Ends : std::uint8_t { kSums, kTerms };

  Accumulator(const Graph& graph, Passes passes, plan::BatchNormSpan batch_norm, Ends ends)
      : graph_(graph),
        passes_(std::move(passes)),
        global_batch_(passes_.stretches.back().first + passes_.stretches.back().count),
        times_(static_cast<std::int64_t>(passes_.stretches.size())),
        is_loop_(batch_norm == plan::BatchNormSpan::kMicroBatch),
        has_terms_(ends == Ends::kTerms),
        held_(graph.values.size()) {}

  Result<Accumulation> run() {
    MOTLEY_RETURN_IF_ERROR(check_sizes());
    spread_over_time();
    find_own();
    find_leaves();
    MOTLEY_RETURN_IF_ERROR(find_fates());
    MOTLEY_RETURN_IF_ERROR(check_outputs());
    find_part();
    begin();
    emit_early();
    made_.early = made_.graph.ops.size();
    for (std::int64_t m = 0; m < times_; ++m) {
      if (m > 0) take_updated_buffers(m - 1);
      for (std::size_t i = 0; i < graph_.ops.size(); ++i)
        if (!is_prepared_[i] && is_there(i, m)) emit(i, m);
    }
    made_.late = made_.graph.ops.size();
    end();
    return std::move(made_);
  }

 private:
  tl::unexpected<Error> refuse(const std::string& why) const {
    return usage_error(
        "synth.accumulation",
        fmt::format("{}: a step cannot be done in {} micro-batches: {}", graph_.name, times_, why));
  }

  /// By operators, one or more.
  tl::unexpected<Error> refuse(const std::vector<std::size_t>& ops) const {
    const Op& first = graph_.ops[ops[0]];
    const std::string more = ops.size() == 1 ? "" : fmt::format(", and {} more", ops.size() - 1);
    return refuse(fmt::format("operator {} in module '{}' {} all samples at once{}",
                              first.full_name(), first.module,
                              graph::draws_across(first) ? "permutes" : "needs", more));
  }

  Result<void> check_sizes() const {
    const auto size =
        std::find_if(graph_.sizes.begin(), graph_.sizes.end(),
                     [](const graph::NamedSize& each) { return each.name == kBatch; });
    for (const plan::Stretch& each : passes_.stretches)
      if (size == graph_.sizes.end() || each.count < size->min)
        return refuse(fmt::format("the model's batches are not as small as {}", each.count));
    if (is_loop_ && times_ > 1 && !are_identical())
      return refuse("batch norm's statistics are of each micro-batch, and these differ");
    return {};
  }

  /// Is there one pass, which has all of everything?
  bool is_alone() const { return times_ == 1; }

  /// Are all passes those of one replica, and as large?
  bool are_identical() const {
    return passes_.replicas.size() == 1 &&
           passes_.stretches.front().count == passes_.stretches.back().count;
  }

  /// Micro-batches are to time what devices are to space: samples are spread over them.
  void spread_over_time() {
    for (const plan::Stretch& each : passes_.stretches) {
      time_.devices.push_back(std::to_string(time_.devices.size()));
      time_.shares.push_back(static_cast<double>(each.count));
    }
    time_.batch = global_batch_;
    if (is_alone()) {
      rules_ = spread_samples(graph_, time_);
    } else {
      find_time_rules();
      spread_samples_by(graph_, rules_, RepeatedTerms::kKept, time_);
    }
    held_.homes = time_.sources;
    for (std::size_t i = 0; i < graph_.ops.size(); ++i)
      held_.add(graph_.ops[i], rules_[i], time_.ops[i]);
    for (const Value& value : graph_.values)
      is_of_inputs_.push_back(value.role != graph::ValueRole::kParameter ? 1 : 0);
    for (const Op& op : graph_.ops) {
      char all = 1;
      graph::for_each_value(op.arguments,
                            [&](ValueId each) { all = all & is_of_inputs_[each.index()]; });
      for (const ValueId output : op.outputs) is_of_inputs_[output.index()] = all;
    }
  }

  /// A micro-batch's own statistics give its own terms of the weights' gradients.
  void find_time_rules() {
    rules_ = find_rules(graph_, global_batch_);
    if (!is_loop_) return;
    const graph::Sizes sizes{{std::string(kBatch), global_batch_}};
    for (std::size_t i = 0; i < graph_.ops.size(); ++i)
      if (is_batch_norm_backward(graph_.ops[i]))
        rules_[i] = graph::find_rule_or_whole(graph_, OpId(static_cast<std::int64_t>(i)), sizes,
                                              graph::Statistics::kOwn);
  }

  /// What each micro-batch has of its own without samples in it: statistics, counts of labels,
  /// buffers that the one before has updated, and what is made of these.
  void find_own() {
    is_own_.assign(graph_.values.size(), 0);
    if (has_terms_ && !is_loop_) find_made_of_samples();
    if (!is_loop_) return;
    for (const graph::Output& output : graph_.outputs)
      if (output.kind == graph::OutputKind::kUpdate) is_own_[output.of.index()] = 1;
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      const Op& op = graph_.ops[i];
      const bool begins = time_.ops[i].factor >= 0 && (trains_batch_norm(op) || is_mean_loss(op));
      if (!begins && !takes_own(i)) continue;
      for (const ValueId output : op.outputs)
        is_own_[output.index()] = home(output) == graph::kWholeForm ? 1 : 0;
    }
  }

  /// What has no samples in it and yet is made of such as have (a tensor of another one's dtype):
  /// each pass makes its own, as another replica's are elsewhere.
  void find_made_of_samples() {
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      const Op& op = graph_.ops[i];
      bool is_of = false;
      for (std::size_t o = 0; o < rules_[i].operands.size(); ++o)
        is_of = is_of || wanted(i, o) != graph::kWholeForm || is_own(rules_[i].operands[o]);
      for (std::size_t r = 0; is_of && r < op.outputs.size(); ++r)
        if (home(op.outputs[r]) == graph::kWholeForm && !(is_mean_loss(op) && r == 1))
          is_own_[op.outputs[r].index()] = 1;
    }
  }

  bool is_own(ValueId value) const { return is_own_[value.index()] != 0; }
  bool takes_own(std::size_t op) const {
    for (std::size_t o = 0; o < rules_[op].operands.size(); ++o)
      if (is_own(rules_[op].operands[o]) || (is_loop_ && takes_sum(op, o))) return true;
    return false;
  }

  /// Is what samples add up to wanted by an operator that needs all of it?
  bool takes_sum(std::size_t op, std::size_t operand) const {
    return home(rules_[op].operands[operand]) == graph::kPartialForm &&
           wanted(op, operand) == graph::kWholeForm;
  }

  const Form& home(ValueId value) const { return held_.homes[value.index()]; }
  bool is_of_samples(ValueId value) const { return home(value) != graph::kWholeForm; }
  bool has_copies(ValueId value) const { return is_of_samples(value) || is_own(value); }

  /// The form in which an operator takes an operand; that of its home where only the dtype is read,
  /// or where both are the same.
  Form wanted(std::size_t op, std::size_t operand) const {
    const ValueId value = rules_[op].operands[operand];
    const Form& form = time_.ops[op].operands[operand];
    const bool is_home = is_ignored(rules_[op], operand) ||
                         is_same(home(value), form, held_.identical[value.index()]);
    return is_home ? home(value) : form;
  }

  /// Is it made of inputs and constants alone?
  bool is_of_inputs(ValueId value) const { return is_of_inputs_[value.index()] != 0; }

  /// A second one, [batch, batch], would be that of a micro-batch.
  bool has_one_batch_dim(ValueId value) const {
    const std::vector<SizeExpr>& shape = graph_.value(value).shape;
    return std::count_if(shape.begin(), shape.end(),
                         [](const SizeExpr& size) { return size.depends_on(kBatch); }) == 1;
  }

  /// Can a value be had in another form than its home? Sums of what inputs alone make, which are
  /// made first; and whole values as terms, of which the first micro-batch has all. (In a loop each
  /// micro-batch has its own sums, and all of what is whole.)
  bool can_have(ValueId value, const Form& form) const {
    if (form == graph::kWholeForm) return home(value) == graph::kPartialForm && is_of_inputs(value);
    return form == graph::kPartialForm && home(value) == graph::kWholeForm;
  }

  /// Empty: it needs all samples at once.
  std::optional<Fate> fate_of(std::size_t i) const {
    if (is_alone()) return Fate::kEach;
    const Op& op = graph_.ops[i];
    const ShardingRule& rule = rules_[i];
    const Strategy& way = time_.ops[i];
    bool has_samples = std::any_of(op.outputs.begin(), op.outputs.end(),
                                   [&](ValueId output) { return is_of_samples(output); });
    for (std::size_t o = 0; o < rule.operands.size(); ++o) {
      const Form form = wanted(i, o);
      has_samples = has_samples || form != graph::kWholeForm;
      if (home(rule.operands[o]) != form && !can_have(rule.operands[o], form)) return std::nullopt;
    }
    if (!has_samples) {
      // A shape of the whole batch would be one of a micro-batch here.
      const auto depends = [](const SizeExpr& size) { return size.depends_on(kBatch); };
      for (const ValueId output : op.outputs)
        if (const auto& shape = graph_.value(output).shape;
            std::any_of(shape.begin(), shape.end(), depends))
          return std::nullopt;
      return takes_own(i) ? Fate::kEach : Fate::kOnce;
    }
    if (way.factor < 0) return Fate::kEach;
    switch (rule.factors[static_cast<std::size_t>(way.factor)].split) {
      case graph::Split::kPlain:
        return Fate::kEach;
      case graph::Split::kMean:
        return Fate::kMean;
      case graph::Split::kRewritten:
        break;
      case graph::Split::kNever:
        return std::nullopt;
    }
    if (is_loop_ && trains_batch_norm(op)) return Fate::kEach;
    if (is_loop_ && is_mean_loss(op)) return Fate::kMean;
    if (is_mean_loss(op))
      return is_of_inputs(std::get<ValueId>(op.arguments[1].value)) ? std::optional(Fate::kNllMean)
                                                                    : std::nullopt;
    if (op.name == "aten::arange")
      return first_number(op) ? std::optional(Fate::kNumbers) : std::nullopt;
    if (takes_rows_by_number(op)) return Fate::kOwnRows;
    return graph::is_draw(op) && has_one_batch_dim(op.outputs[0]) ? std::optional(Fate::kEach)
                                                                  : std::nullopt;
  }

  Result<void> find_fates() {
    is_prepared_.assign(graph_.ops.size(), 0);
    is_early_sum_.assign(graph_.values.size(), 0);
    const std::vector<char> is_live = graph::find_live(graph_).marks();
    std::vector<std::size_t> refused;
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      const bool is_there = is_live[i] != 0 && is_adder_[i] == 0;
      const std::optional<Fate> fate = is_there ? fate_of(i) : Fate::kDropped;
      if (!fate) refused.push_back(i);
      fates_.push_back(fate.value_or(Fate::kDropped));
      if (fates_[i] == Fate::kDropped) continue;
      if (*fate == Fate::kNllMean) prepare(std::get<ValueId>(graph_.ops[i].arguments[1].value));
      for (std::size_t o = 0; o < rules_[i].operands.size(); ++o) {
        const ValueId operand = rules_[i].operands[o];
        if (!is_loop_ && takes_sum(i, o)) {
          is_early_sum_[operand.index()] = 1;
          prepare(operand);
        }
      }
    }
    if (!refused.empty()) return refuse(refused);
    return {};
  }

  /// Gradients that are sums of gradients (of a weight that is used twice): where outputs stay
  /// terms these are not added up. By output, what it is the sum of.
  void find_leaves() {
    is_adder_.assign(graph_.ops.size(), 0);
    for (const graph::Output& output : graph_.outputs) leaves_.push_back({output.value});
    if (has_terms_) take_sums_apart();
    is_summed_leaf_.assign(graph_.values.size(), 0);
    for (std::size_t o = 0; o < leaves_.size(); ++o)
      if (is_summed(graph_.outputs[o]))
        for (const ValueId leaf : leaves_[o]) is_summed_leaf_[leaf.index()] = 1;
  }

  void take_sums_apart() {
    std::vector<int> readers(graph_.values.size(), 0);
    for (const Op& op : graph_.ops)
      graph::for_each_value(op.arguments, [&](ValueId value) { ++readers[value.index()]; });
    for (const graph::Output& output : graph_.outputs) ++readers[output.value.index()];
    for (std::size_t o = 0; o < leaves_.size(); ++o)
      for (std::size_t l = 0;
           graph_.outputs[o].kind == graph::OutputKind::kGradient && l < leaves_[o].size();)
        if (!take_apart(o, l, readers)) ++l;
  }

  bool take_apart(std::size_t output, std::size_t leaf, const std::vector<int>& readers) {
    const ValueId value = leaves_[output][leaf];
    const OpId producer = graph_.value(value).producer;
    if (producer.is_none() || readers[value.index()] != 1 || home(value) != graph::kPartialForm)
      return false;
    const Op& op = graph_.op(producer);
    if (op.full_name() != "aten::add.Tensor" || op.arguments.size() != 3 ||
        op.arguments[2] != SymbolicArgument{std::int64_t{1}})
      return false;
    const auto* a = std::get_if<ValueId>(&op.arguments[0].value);
    const auto* b = std::get_if<ValueId>(&op.arguments[1].value);
    if (a == nullptr || b == nullptr || *a == *b) return false;
    const Value& about = graph_.value(value);
    for (const ValueId each : {*a, *b})
      if (home(each) != graph::kPartialForm || readers[each.index()] != 1 ||
          graph_.value(each).dtype != about.dtype || graph_.value(each).shape != about.shape)
        return false;
    is_adder_[producer.index()] = 1;
    leaves_[output][leaf] = *a;
    leaves_[output].push_back(*b);
    return true;
  }

  /// What is summed before all else.
  void prepare(ValueId value) {
    const OpId producer = graph_.value(value).producer;
    if (producer.is_none() || is_prepared_[producer.index()]) return;
    is_prepared_[producer.index()] = 1;
    graph::for_each_value(graph_.op(producer).arguments, [&](ValueId each) { prepare(each); });
  }

  Result<void> check_outputs() const {
    for (const graph::Output& output : graph_.outputs) {
      const bool is_update = output.kind == graph::OutputKind::kUpdate;
      if (output.kind == graph::OutputKind::kExtra || !has_copies(output.value) ||
          is_own(output.value))
        continue;
      if (is_update || home(output.value) != graph::kPartialForm)
        return refuse(fmt::format("output {} is not a sum over samples", output.value.value));
    }
    return {};
  }

  /// How much the loss of each micro-batch counts in a loop.
  void find_part() {
    if (!is_loop_) return;
    graph::Reach of_loss(graph_);
    for (const graph::Output& output : graph_.outputs)
      if (output.kind == graph::OutputKind::kLoss) of_loss.add(output.value);
    of_loss.close();
    for (std::size_t i = 0; i < graph_.ops.size(); ++i)
      if (of_loss.holds(i) && is_mean(i)) made_.part = 1 / static_cast<double>(times_);
  }

  /// Does the operator divide by how many samples there are?
  bool is_mean(std::size_t i) const {
    bool divides = fates_[i] == Fate::kMean;
    for (const SymbolicArgument& argument : graph_.ops[i].arguments)
      if (const auto* number = std::get_if<graph::SymbolicNumber>(&argument.value))
        divides = divides || number->expr.depends_on(kBatch);
    for (std::size_t o = 0; o < rules_[i].operands.size(); ++o)
      divides = divides || takes_sum(i, o);
    return divides;
  }

  /// Has the operator a copy in a micro-batch?
  bool is_there(std::size_t op, std::int64_t m) const {
    return fates_[op] != Fate::kDropped && (m == 0 || fates_[op] != Fate::kOnce);
  }

  // ---- the new graph

  ValueId add_value(Value value) {
    made_.graph.values.push_back(std::move(value));
    return ValueId(static_cast<std::int64_t>(made_.graph.values.size()) - 1);
  }

  void add_op(Op op, Copy copy) {
    const OpId id(static_cast<std::int64_t>(made_.graph.ops.size()));
    for (const ValueId output : op.outputs) made_.graph.values[output.index()].producer = id;
    made_.graph.ops.push_back(std::move(op));
    made_.copies.push_back(copy);
  }

  /// One that the graph has not: in the module of `like`.
  ValueId add(const std::string& name, const std::string& overload, SymbolicArguments arguments,
              DType dtype, std::vector<SizeExpr> shape, const Op* like = nullptr,
              std::int64_t pass = -1) {
    Op op;
    op.name = name;
    op.overload = overload;
    op.arguments = std::move(arguments);
    if (like != nullptr) {
      op.module = like->module;
      op.direction = like->direction;
      op.sequence = like->sequence;
    }
    Value value;
    value.dtype = dtype;
    value.shape = std::move(shape);
    const ValueId result = add_value(std::move(value));
    op.outputs = {result};
    Copy copy = copy_in(pass);
    if (like != nullptr) copy.beside = OpId(like - graph_.ops.data());
    add_op(std::move(op), copy);
    return result;
  }

  /// Of a pass, or of all replicas: -1.
  Copy copy_in(std::int64_t pass) const {
    Copy copy;
    copy.micro_batch = has_terms_ ? pass : std::max<std::int64_t>(pass, 0);
    if (pass >= 0) copy.stretch = passes_.stretches[static_cast<std::size_t>(pass)];
    return copy;
  }

  ValueId like(ValueId value, const std::string& name, const std::string& overload,
               SymbolicArguments arguments, const Op& op, std::int64_t pass = -1) {
    const Value about = made_.graph.value(value);
    return add(name, overload, std::move(arguments), about.dtype, about.shape, &op, pass);
  }

  std::size_t replica_of(std::int64_t m) const {
    return passes_.replica_of[static_cast<std::size_t>(m)];
  }
  /// Is it the first of its replica?
  bool is_first(std::int64_t m) const { return m == 0 || replica_of(m) != replica_of(m - 1); }
  double share_of(std::int64_t m) const {
    return static_cast<double>(passes_.stretches[static_cast<std::size_t>(m)].count) /
           static_cast<double>(global_batch_);
  }
  graph::Sizes sizes_of(std::int64_t batch) const { return {{std::string(kBatch), batch}}; }
  /// The expression in a pass.
  SizeExpr in_pass(const SizeExpr& expr, std::int64_t m) const {
    if (!has_terms_ || !expr.depends_on(kBatch)) return expr;
    const plan::Stretch& stretch = passes_.stretches[static_cast<std::size_t>(m)];
    return SizeExpr(expr.evaluate_integer(sizes_of(stretch.count)));
  }

  ValueId scaled(ValueId value, double factor, const Op* beside = nullptr) {
    const Value about = made_.graph.value(value);
    return add("aten::mul", "Scalar", {{value}, {factor}}, about.dtype, about.shape, beside);
  }

  std::vector<ValueId>& copies_of(ValueId value) { return values_[value.index()]; }

  /// The copy of a micro-batch; of what has none, the value itself.
  ValueId mapped(ValueId value, std::int64_t m) {
    const std::vector<ValueId>& copies = copies_of(value);
    MOTLEY_CHECK(!copies.empty());
    return copies[has_copies(value) ? static_cast<std::size_t>(m) : 0];
  }

  /// The same in the form that an operator takes.
  ValueId taken(ValueId value, const Form& form, std::int64_t m) {
    if (is_loop_ || form == home(value)) return mapped(value, m);
    if (form == graph::kWholeForm) return sums_[value.index()].front();
    const ValueId whole = mapped(value, m);
    if (m == 0) return whole;
    if (is_own(value)) return zeros_like(whole, value, m);
    const auto [zeros, is_new] = zeros_.try_emplace(value);
    if (is_new) zeros->second = zeros_like(whole, value, -1);
    return zeros->second;
  }

  ValueId zeros_like(ValueId whole, ValueId value, std::int64_t pass) {
    const Value about = made_.graph.value(whole);
    const SymbolicArgument none{NoneArgument{}};
    return add("aten::zeros_like", "", {{whole}, none, none, none, none, none}, about.dtype,
               about.shape, producer_of(value), pass);
  }

  /// None of a source.
  const Op* producer_of(ValueId value) const {
    const OpId producer = graph_.value(value).producer;
    return producer.is_none() ? nullptr : &graph_.op(producer);
  }

  /// Sources keep their order, first of all values; inputs are cut into micro-batches.
  void begin() {
    made_.micro_batches = times_;
    made_.graph.name = graph_.name;
    made_.graph.sizes = graph_.sizes;
    // Sums of gradients come on top.
    const auto times = static_cast<std::size_t>(times_);
    made_.graph.ops.reserve(times * graph_.ops.size() * 5 / 4);
    made_.graph.values.reserve(times * graph_.values.size() * 5 / 4);
    made_.copies.reserve(times * graph_.ops.size() * 5 / 4);
    values_.resize(graph_.values.size());
    sums_.resize(graph_.values.size());
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      if (!graph_.values[v].producer.is_none()) continue;
      Value source = graph_.values[v];
      const bool is_cut = held_.homes[v] != graph::kWholeForm;
      if (is_cut && has_terms_) {
        for (const plan::Stretch& replica : passes_.replicas) {
          source.shape[0] = SizeExpr(replica.count);
          values_[v].push_back(add_value(source));
        }
        continue;
      }
      if (is_cut) source.shape[0] = of_all(source.shape[0], times_);
      if (is_alone())
        for (SizeExpr& size : source.shape) size = in_pass(size, 0);
      values_[v] = {add_value(std::move(source))};
    }
    for (std::size_t v = 0; v < graph_.values.size(); ++v)
      if (graph_.values[v].producer.is_none() && held_.homes[v] != graph::kWholeForm)
        has_terms_ ? slice_input(v) : cut_input(v);
    for (std::size_t v = 0; v < graph_.values.size(); ++v)
      if (graph_.values[v].role == graph::ValueRole::kTangent && made_.part != 1)
        values_[v] = {scaled(values_[v][0], made_.part)};
  }

  void slice_input(std::size_t v) {
    const Value& input = graph_.values[v];
    const std::vector<ValueId> wholes = std::exchange(values_[v], {});
    for (std::int64_t m = 0; m < times_; ++m) {
      const plan::Stretch& stretch = passes_.stretches[static_cast<std::size_t>(m)];
      const std::size_t replica = replica_of(m);
      const std::int64_t first = stretch.first - passes_.replicas[replica].first;
      std::vector<SizeExpr> shape = input.shape;
      shape[0] = SizeExpr(stretch.count);
      values_[v].push_back(add("aten::slice", "Tensor",
                               {{wholes[replica]},
                                {std::int64_t{0}},
                                {first},
                                {first + stretch.count},
                                {std::int64_t{1}}},
                               input.dtype, std::move(shape), nullptr, m));
    }
  }

  void cut_input(std::size_t v) {
    const Value& input = graph_.values[v];
    std::vector<SizeExpr> shape = input.shape;
    shape.insert(shape.begin(), SizeExpr(times_));
    SymbolicArguments sizes;
    for (const SizeExpr& size : shape) sizes.push_back({SizeArgument{size}});
    const ValueId seen = add("aten::view", "", {{values_[v][0]}, {sizes}}, input.dtype, shape);
    values_[v].clear();
    for (std::int64_t m = 0; m < times_; ++m)
      values_[v].push_back(
          add("aten::select", "int", {{seen}, {std::int64_t{0}}, {m}}, input.dtype, input.shape));
  }

  /// Micro-batches after `m` have the buffers that it leaves.
  void take_updated_buffers(std::int64_t m) {
    std::vector<std::pair<ValueId, ValueId>> updated;
    for (const graph::Output& output : graph_.outputs)
      if (output.kind == graph::OutputKind::kUpdate && is_own(output.of))
        updated.emplace_back(output.of, mapped(output.value, m));
    for (const auto& [buffer, value] : updated) copies_of(buffer).push_back(value);
  }

  /// What is summed over all micro-batches before they begin, and how many labels count.
  void emit_early() {
    for (std::size_t i = 0; i < graph_.ops.size(); ++i)
      for (std::int64_t m = 0; is_prepared_[i] && m < times_; ++m)
        if (is_there(i, m)) emit(i, m);
    for (std::size_t v = 0; v < sums_.size(); ++v)
      if (is_early_sum_[v] != 0)
        sums_[v] = {sum_replicas(sums_[v], *producer_of(ValueId(static_cast<std::int64_t>(v))))};
    for (std::size_t i = 0; i < graph_.ops.size(); ++i)
      if (fates_[i] == Fate::kNllMean) count_labels(i);
  }

  /// Of sums of each replica.
  ValueId sum_replicas(const std::vector<ValueId>& sums, const Op& op) {
    if (sums.size() == 1) return sums.front();
    SymbolicArguments terms;
    for (const ValueId each : sums) terms.push_back({each});
    return like(sums.front(), std::string(kSumReplicas), "", {{terms}}, op);
  }

  void count_labels(std::size_t i) {
    const Op& op = graph_.ops[i];
    const auto target = std::get<ValueId>(op.arguments[1].value);
    const DType dtype = graph_.value(op.outputs[1]).dtype;
    const auto* weights = std::get_if<ValueId>(&op.arguments[2].value);
    const auto key = std::tuple(target, weights == nullptr ? ValueId() : *weights,
                                std::get<std::int64_t>(op.arguments[4].value), dtype);
    const auto [known, is_new] = counts_.try_emplace(key);
    if (is_new) {
      const KeywordArgument f32{"dtype", "f32"};
      std::vector<ValueId> sums;
      for (std::int64_t m = 0; m < times_; ++m) {
        const ValueId worth = label_worth(mapped(target, m), op, m);
        const ValueId sum = add("aten::sum", "", {{worth}, {f32}}, DType::kF32, {}, &op, m);
        if (is_first(m))
          sums.push_back(sum);
        else
          sums.back() = add_up(sums.back(), sum, op, m);
      }
      known->second = sum_replicas(sums, op);
      if (dtype != DType::kF32) {
        const SymbolicArgument none{NoneArgument{}};
        const KeywordArgument to{"dtype", std::string(dtype_name(dtype))};
        known->second =
            add("aten::_to_copy", "", {{known->second}, {to}, none, none, none, {false}, none},
                dtype, {}, &op);
      }
    }
    copies_of(op.outputs[1]) = {known->second};
  }

  /// By label: does it count, or its class's weight?
  ValueId label_worth(ValueId labels, const Op& op, std::int64_t m) {
    const SymbolicArgument& ignored = op.arguments[4];
    const Value about = made_.graph.value(labels);
    const auto compared = [&](const char* how) {
      return add(how, "Scalar", {{labels}, ignored}, DType::kBool, about.shape, &op, m);
    };
    const auto* of_classes = std::get_if<ValueId>(&op.arguments[2].value);
    if (of_classes == nullptr) return compared("aten::ne");
    const ValueId weights = mapped(*of_classes, 0);
    const ValueId outside = compared("aten::eq");
    const ValueId known = like(labels, "aten::masked_fill", "Scalar",
                               {{labels}, {outside}, {std::int64_t{0}}}, op, m);
    const ValueId picked = add("aten::index", "Tensor", {{weights}, {SymbolicArguments{{known}}}},
                               made_.graph.value(weights).dtype, about.shape, &op, m);
    return like(picked, "aten::masked_fill", "Scalar", {{picked}, {outside}, {0.0}}, op, m);
  }

  ValueId add_up(ValueId a, ValueId b, const Op& op, std::int64_t m) {
    return like(a, "aten::add", "Tensor", {{a}, {b}, {std::int64_t{1}}}, op, m);
  }

  SymbolicArgument copied(const SymbolicArgument& argument, std::size_t op, std::int64_t m,
                          std::size_t& operand) {
    if (const auto* id = std::get_if<ValueId>(&argument.value))
      return {taken(*id, wanted(op, operand++), m)};
    if (const auto* number = std::get_if<graph::SymbolicNumber>(&argument.value)) {
      if (!has_terms_) return {graph::SymbolicNumber{of_all(number->expr, is_loop_ ? 1 : times_)}};
      return {graph::SymbolicNumber{number_in(number->expr, m)}};
    }
    if (const auto* size = std::get_if<SizeArgument>(&argument.value))
      return {SizeArgument{in_pass(size->expr, m)}};
    if (const auto* list = std::get_if<SymbolicArguments>(&argument.value)) {
      SymbolicArguments made;
      for (const SymbolicArgument& each : *list) made.push_back(copied(each, op, m, operand));
      return {made};
    }
    return argument;
  }

  /// A number of the whole batch or, in a loop, of the pass.
  SizeExpr number_in(const SizeExpr& expr, std::int64_t m) const {
    if (!expr.depends_on(kBatch)) return expr;
    const std::int64_t batch =
        is_loop_ ? passes_.stretches[static_cast<std::size_t>(m)].count : global_batch_;
    return with_batch(expr, fmt::format("({})", batch));
  }

  void emit(std::size_t i, std::int64_t m) {
    const Op& op = graph_.ops[i];
    Op made = op;
    const Fate fate = is_loop_ ? Fate::kEach : fates_[i];
    std::size_t operand = 0;
    for (SymbolicArgument& argument : made.arguments) argument = copied(argument, i, m, operand);
    if (fate == Fate::kNllMean) made.arguments[3] = {kSumReduction};
    if (fate == Fate::kOwnRows) take_own_rows(made, i, m);
    for (ValueId& output : made.outputs) {
      Value value = graph_.value(output);
      for (SizeExpr& size : value.shape) size = in_pass(size, m);
      output = add_value(std::move(value));
    }
    if (fate == Fate::kNumbers) count_from(made, rows_before(op.outputs[0], 0, m));
    const std::vector<ValueId> results = made.outputs;
    const graph::Form samples = op.outputs.empty() ? graph::kWholeForm : time_.ops[i].results[0];
    Copy copy = copy_in(has_terms_ && fates_[i] == Fate::kOnce ? -1 : m);
    copy.of = OpId(static_cast<std::int64_t>(i));
    copy.samples = samples;
    add_op(std::move(made), copy);
    for (std::size_t r = 0; r < results.size(); ++r) {
      const bool is_count = fate == Fate::kNllMean && r == 1;  // known already
      if (!is_count) define(op, op.outputs[r], results[r], fate, m);
    }
  }

  /// Indices of a dimension that the micro-batches before have.
  SizeExpr rows_before(ValueId value, int dim, std::int64_t m) const {
    const SizeExpr& rows = graph_.value(value).shape[static_cast<std::size_t>(dim)];
    if (!has_terms_) return parsed_size(fmt::format("({})*{}", rows.text(), m));
    const plan::Stretch& stretch = passes_.stretches[static_cast<std::size_t>(m)];
    return SizeExpr(stretch.first == 0 ? 0 : rows.evaluate_integer(sizes_of(stretch.first)));
  }

  /// arange(end) or (start, end, ...) of as many numbers, behind those before.
  void count_from(Op& made, const SizeExpr& before) const {
    const std::int64_t first = first_number(made).value_or(0);
    const SizeExpr& rows = made_.graph.value(made.outputs[0]).shape[0];
    const auto place = [&](const std::string& text) {
      return SymbolicArgument{SizeArgument{parsed_size(text)}};
    };
    if (made.overload.empty()) {
      made.arguments.insert(made.arguments.begin(), SymbolicArgument{});
      made.overload = "start";
    }
    made.arguments[0] = place(fmt::format("{}+{}", before.text(), first));
    made.arguments[1] = place(fmt::format("{}+{}+{}", before.text(), first, rows.text()));
  }

  /// (x, [numbers], ...): the numbers are of all rows, x has those of a micro-batch.
  void take_own_rows(Op& made, std::size_t op, std::int64_t m) {
    if (m == 0) return;
    const int dim = time_.ops[op].operands[0].dim;
    auto& indices = std::get<SymbolicArguments>(made.arguments[1].value);
    SymbolicArgument& numbers = indices[static_cast<std::size_t>(dim)];
    const ValueId x = std::get<ValueId>(graph_.ops[op].arguments[0].value);
    const SizeArgument before{rows_before(x, dim, m)};
    numbers = {like(std::get<ValueId>(numbers.value), "aten::sub", "Scalar",
                    {numbers, {before}, {std::int64_t{1}}}, graph_.ops[op], m)};
  }

  void define(const Op& op, ValueId value, ValueId result, Fate fate, std::int64_t m) {
    if (fate == Fate::kMean) {
      result = like(result, "aten::mul", "Scalar", {{result}, {share_of(m)}}, op, m);
    }
    if (fate == Fate::kNllMean) {
      const ValueId count = mapped(op.outputs[1], 0);
      result = like(result, "aten::div", "Tensor", {{result}, {count}}, op, m);
    }
    if (!has_copies(value) && m > 0) return;  // the same as the first
    copies_of(value).push_back(result);
    if (!is_summed(value)) return;
    std::vector<ValueId>& sums = sums_[value.index()];
    if (is_first(m))
      sums.push_back(result);
    else
      sums.back() = add_up(sums.back(), result, op, m);
  }

  bool is_summed(ValueId value) const {
    if (!has_copies(value)) return false;
    if (!is_loop_ && is_own(value)) return false;  // all of it, in each pass
    if (is_early_sum_[value.index()] != 0) return true;
    return is_summed_leaf_[value.index()] != 0;
  }

  static bool is_summed(const graph::Output& output) {
    return output.kind == graph::OutputKind::kLoss || output.kind == graph::OutputKind::kGradient;
  }

  /// The loss or a gradient of all micro-batches.
  ValueId total(const graph::Output& output) {
    const bool has_sum = is_summed(output.value);
    ValueId all = has_sum ? sums_[output.value.index()].front() : mapped(output.value, 0);
    if (is_loop_ && !has_sum) all = scaled(all, static_cast<double>(times_));
    return made_.part != 1 && output.kind == graph::OutputKind::kLoss ? scaled(all, made_.part)
                                                                      : all;
  }

  /// Each replica's terms of the outputs.
  void end_in_terms() {
    for (std::size_t o = 0; o < graph_.outputs.size(); ++o) {
      const graph::Output& output = graph_.outputs[o];
      if (output.kind == graph::OutputKind::kExtra) continue;
      for (std::size_t r = 0; r < passes_.replicas.size(); ++r)
        for (const ValueId leaf : leaves_[o]) {
          const bool has_sum = is_summed(output) && is_summed(leaf);
          // Of a loss or gradient without samples, which all have alike, one term counts.
          if (is_summed(output) && !has_sum && r > 0) continue;
          ValueId value =
              has_sum ? sums_[leaf.index()][r] : mapped(leaf, is_summed(output) ? 0 : times_ - 1);
          if (is_loop_ && is_summed(output) && !has_sum)
            value = scaled(value, static_cast<double>(times_), producer_of(leaf));
          if (made_.part != 1 && output.kind == graph::OutputKind::kLoss)
            value = scaled(value, made_.part, producer_of(leaf));
          made_.terms.push_back({o, r, value});
        }
    }
  }

  void end() {
    if (has_terms_) return end_in_terms();
    for (graph::Output output : graph_.outputs) {
      if (output.kind == graph::OutputKind::kExtra) continue;
      output.value = is_summed(output) ? total(output) : mapped(output.value, times_ - 1);
      if (!output.of.is_none()) output.of = values_[output.of.index()][0];
      made_.graph.outputs.push_back(output);
    }
  }

  const Graph& graph_;
  const Passes passes_;
  const std::int64_t global_batch_, times_;
  const bool is_loop_;    // of batch norm in each micro-batch
  const bool has_terms_;  // Ends
  Sharding time_;
  std::vector<ShardingRule> rules_;
  Held held_;                       // over time
  std::vector<char> is_of_inputs_;  // by value
  std::vector<char> is_own_;        // by value: find_own
  std::vector<Fate> fates_;         // by operator
  std::vector<char> is_adder_;      // by operator: adds up terms of an output that stay terms
  std::vector<std::vector<ValueId>> leaves_;  // by output: what it is the sum of
  std::vector<char> is_summed_leaf_;          // by value: of an output that is a sum
  std::vector<char> is_prepared_;             // by operator
  std::vector<char> is_early_sum_;            // by value
  std::map<std::tuple<ValueId, ValueId, std::int64_t, DType>, ValueId> counts_;
  std::map<ValueId, ValueId> zeros_;
  Accumulation made_;
  std::vector<std::vector<ValueId>> values_;  // by value: copies, by micro-batch
  std::vector<std::vector<ValueId>> sums_;    // by value: of each replica
};

/// The strategy of the operator's copy that sums where the operator takes a mean.
Strategy like_strategy(const ShardingRule& rule, const Strategy& model) {
  if (model.factor >= 0) {
    auto split = split_strategy(rule, model.factor, model.outer, model.inner);
    MOTLEY_CHECK(split.has_value());
    return std::move(*split);
  }
  for (Strategy& way : linear_strategies(rule))
    if (way.operands == model.operands) return std::move(way);
  return whole_strategy(rule);
}

}  // namespace

Result<Accumulation> accumulate(const Graph& graph, std::int64_t global_batch,
                                std::int64_t micro_batches, plan::BatchNormSpan batch_norm) {
  if (micro_batches < 1 || global_batch % micro_batches != 0)
    return usage_error(
        "synth.accumulation",
        fmt::format("{}: a step cannot be done in {} micro-batches: the global batch is {}",
                    graph.name, micro_batches, global_batch));
  const plan::Replica replica{global_batch, {}, micro_batches};
  Passes passes{plan::find_stretches(replica, 0), {}, {{0, global_batch}}};
  passes.replica_of.assign(passes.stretches.size(), 0);
  return Accumulator(graph, std::move(passes), batch_norm, Accumulator::Ends::kSums).run();
}

Passes find_passes(const plan::Plan& plan) {
  Passes passes;
  std::int64_t first = 0;
  for (const plan::Replica& replica : plan.replicas) {
    const std::vector<plan::Stretch> stretches = plan::find_stretches(replica, first);
    passes.stretches.insert(passes.stretches.end(), stretches.begin(), stretches.end());
    passes.replica_of.resize(passes.stretches.size(), passes.replicas.size());
    passes.replicas.push_back({first, replica.samples});
    first += replica.samples;
  }
  return passes;
}

Result<Accumulation> accumulate_replicas(const Graph& graph, const Passes& passes,
                                         plan::BatchNormSpan batch_norm) {
  return Accumulator(graph, passes, batch_norm, Accumulator::Ends::kTerms).run();
}

bool trains_batch_norm(const Graph& graph) {
  return std::any_of(graph.ops.begin(), graph.ops.end(),
                     [](const Op& op) { return trains_batch_norm(op); });
}

AccumulatedSharding spread_accumulation(const Accumulation& accumulation, const Graph& graph,
                                        const Sharding& sharding,
                                        const std::vector<ShardingRule>& rules) {
  const Graph& made = accumulation.graph;
  AccumulatedSharding spread;
  spread.sharding.devices = sharding.devices;
  spread.sharding.shares = sharding.shares;
  spread.sharding.batch = sharding.batch;
  spread.sharding.turns = sharding.turns;
  spread.sharding.exchanges = sharding.exchanges;
  Held held(made.values.size());
  std::vector<Form>& homes = held.homes;
  std::size_t source = 0;  // sources of both graphs are in the same order
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    if (!graph.values[v].producer.is_none()) continue;
    Form form = sharding.sources[v];
    if (graph.values[v].role == graph::ValueRole::kInput && form.kind == FormKind::kSharded)
      form.outer *= accumulation.micro_batches;
    homes[source++] = form;
  }
  for (const auto& [again, parameter] : accumulation.again) {
    homes[again.index()] = homes[parameter.index()];
    spread.sharding.gathered_again.insert(again);
  }
  spread.sharding.sources = homes;
  const graph::Sizes sizes{{std::string(kBatch), sharding.batch}};
  for (std::size_t i = 0; i < made.ops.size(); ++i) {
    const OpId id(static_cast<std::int64_t>(i));
    const OpId of = accumulation.copies[i].of;
    ShardingRule& rule = spread.rules.emplace_back();
    Strategy& way = spread.sharding.ops.emplace_back();
    const bool is_as_it_was =
        !of.is_none() && (!is_mean_loss(graph.op(of)) || is_mean_loss(made.ops[i]));
    if (is_as_it_was) {
      rule = rule_like(rules[of.index()], made.ops[i]);
      way = sharding.ops[of.index()];
    } else {
      rule = find_rule_or_whole(made, id, sizes);
      way = of.is_none() ? best_strategy(made, id, rule, held, sharding.shares)
                         : like_strategy(rule, sharding.ops[of.index()]);
    }
    for (std::size_t r = 0; r < way.results.size(); ++r)
      homes[made.ops[i].outputs[r].index()] = way.results[r];
  }
  return spread;
}

}  // namespace motley::synth
