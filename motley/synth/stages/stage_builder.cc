#include "motley/synth/stages/stage_builder.h"

#include <optional>
#include <utility>

#include "motley/base/check.h"
#include "motley/graph/edit.h"

namespace motley::synth {
namespace {

using graph::Op;
using graph::SymbolicArgument;
using graph::Value;
using Term = Accumulation::Term;

struct Stand {
  std::int64_t position, task;
};

void add_operator(StageGraph& stage, Op op, const Copy& copy, OpId origin, Stand stand) {
  graph::add_op(stage.graph, std::move(op));
  stage.copies.push_back(copy);
  stage.origins.push_back(origin);
  stage.positions.push_back(stand.position);
  stage.tasks.push_back(stand.task);
}

/// Which value of each stage is which one of all replicas.
class ValuePlaces {
 public:
  explicit ValuePlaces(std::size_t values) : places_(values, {kNowhere, ValueId()}) {}

  /// Returns the value in a stage; none: it is not there (yet).
  ValueId& at(ValueId value, std::size_t stage) {
    auto& [first, id] = places_[value.index()];
    if (first == kNowhere) first = stage;
    return first == stage ? id : other_places_[{value, stage}];
  }

 private:
  /// By value the first stage that has it, and what it is there; further stages.
  std::vector<std::pair<std::size_t, ValueId>> places_;
  std::map<std::pair<ValueId, std::size_t>, ValueId> other_places_;
};

class StageBuilder {
 public:
  StageBuilder(const StageNeeds& needs, const OperatorOrder& order, graph::Graph& all,
               StagedStep& step)
      : needs_(needs),
        order_(order),
        all_(all),
        step_(step),
        parameter_of_(needs.all.again.begin(), needs.all.again.end()),
        places_(all.values.size()) {
    for (const Term& term : needs.all.terms) {
      ++terms_left_[{term.output, needs.stage_of(term)}];
      if (needs.producer(term.value) != kNowhere) terms_of_[term.value].push_back(term);
    }
  }

  void run() {
    reserve();
    for (std::size_t position = 0; position < order_.operators.size(); ++position) {
      const Stand stand{static_cast<std::int64_t>(position), order_.tasks[position]};
      take_operator(order_.operators[position], stand);
      // Before and behind all micro-batches each is a task of its own.
      const bool goes_on = order_.is_between(stand.task) &&
                           position + 1 < order_.operators.size() &&
                           order_.tasks[position + 1] == stand.task;
      if (!goes_on) end_task(order_.operators[position].stage, stand);
    }
    add_last_terms();
    for (std::size_t o = 0; o < needs_.model.outputs.size(); ++o)
      if (needs_.model.outputs[o].kind != graph::OutputKind::kExtra)
        for (std::size_t s = 0; s < step_.stages.size(); ++s) add_output(s, o);
  }

 private:
  /// Reserves space for the operators and their results.
  void reserve() {
    std::vector<std::size_t> ops(step_.stages.size(), 0), values(step_.stages.size(), 0);
    for (const StagedOp& each : order_.operators) {
      ++ops[each.stage];
      values[each.stage] += all_.ops[each.op].outputs.size();
    }
    for (std::size_t s = 0; s < step_.stages.size(); ++s) {
      StageGraph& stage = step_.stages[s];
      const auto reserve = [](auto& list, std::size_t count) { list.reserve(count * 9 / 8); };
      reserve(stage.graph.ops, ops[s]);
      reserve(stage.graph.values, values[s]);
      reserve(stage.copies, ops[s]);
      reserve(stage.origins, ops[s]);
      reserve(stage.positions, ops[s]);
      reserve(stage.tasks, ops[s]);
    }
  }

  void take_operator(const StagedOp& at, Stand stand) {
    StageGraph& stage = step_.stages[at.stage];
    // Most are in one stage, which takes them.
    const bool is_sum = needs_.is_sum(at.op);
    const bool is_only = needs_.stages_of[at.op].size() == 1 && !is_sum;
    Op made = is_only ? std::move(all_.ops[at.op]) : all_.ops[at.op];
    if (is_sum) made.arguments = {{needs_.own_term(at.op, at.stage)}};
    graph::map_values(made.arguments, [&](ValueId value) { return here(value, at.stage); });
    for (ValueId& output : made.outputs) {
      const ValueId there = output;
      Value& value = all_.values[there.index()];
      output = places_.at(there, at.stage) =
          graph::add_value(stage.graph, is_only ? std::move(value) : value);
      if (const auto terms = terms_of_.find(there); terms != terms_of_.end())
        for (const Term& term : terms->second)
          if (needs_.stage_of(term) == at.stage) made_terms_.push_back(term);
    }
    add_operator(stage, std::move(made), needs_.all.copies[at.op], OpId(at.op), stand);
    const auto passing = needs_.passing.find(at);
    if (passing == needs_.passing.end()) return;
    for (const auto& [value, to] : passing->second)
      places_.at(value, to) = pass(at.stage, to, places_.at(value, at.stage), stand);
  }

  ValueId here(ValueId value, std::size_t s) {
    if (const ValueId there = places_.at(value, s); !there.is_none()) return there;
    MOTLEY_CHECK(needs_.producer(value) == kNowhere);
    // Who gathers a parameter again has it.
    if (const auto again = parameter_of_.find(value); again != parameter_of_.end())
      here(again->second, s);
    return places_.at(value, s) = graph::add_value(step_.stages[s].graph, all_.value(value));
  }

  ValueId pass(std::size_t from, std::size_t to, ValueId given, Stand stand) {
    Value received = step_.stages[from].graph.value(given);
    received.producer = OpId();
    const ValueId read = graph::add_value(step_.stages[to].graph, std::move(received));
    step_.boundary_values.push_back({from, to, given, read, stand.position});
    return read;
  }

  /// Terms are added up, and given to others, behind what others may wait for.
  void end_task(std::size_t stage, Stand stand) {
    add_given(stage, stand);
    for (const Term& term : std::exchange(made_terms_, {})) {
      add_term(term.output, stage, here(term.value, stage), stand);
      const std::optional<std::size_t> owner = owner_of(term);
      if (--terms_left_.at({term.output, stage}) > 0 || !owner) continue;
      const ValueId sum = sums_.extract({term.output, stage}).mapped();
      given_[*owner].push_back({term.output, pass(stage, *owner, sum, stand)});
    }
  }

  void add_given(std::size_t stage, Stand stand) {
    for (const auto& [output, value] : std::exchange(given_[stage], {}))
      add_term(output, stage, value, stand);
  }

  /// A stage that has a term of a gradient and does not read the parameter has nothing to update:
  /// the first stage of its replica that reads it gets the term. None: it is where it should be.
  std::optional<std::size_t> owner_of(const Term& term) const {
    const graph::Output& output = needs_.model.outputs[term.output];
    if (output.kind != graph::OutputKind::kGradient) return std::nullopt;
    const std::set<std::size_t>& readers = needs_.readers[needs_.sources.at(output.of).index()];
    if (readers.contains(needs_.stage_of(term))) return std::nullopt;
    const auto first = readers.lower_bound(needs_.first_stage[term.replica]);
    if (first == readers.end() || step_.stages[*first].replica != term.replica) return std::nullopt;
    return *first;
  }

  ValueId add_to(std::size_t s, Op op, Value result, OpId beside, Stand stand) {
    StageGraph& stage = step_.stages[s];
    op.direction = graph::Direction::kBackward;
    if (!beside.is_none()) op.module = needs_.model.op(beside).module;
    result.role = graph::ValueRole::kActivation;
    result.name.clear();
    result.tied.clear();
    op.outputs = {graph::add_value(stage.graph, std::move(result))};
    const ValueId made = op.outputs.front();
    add_operator(stage, std::move(op), {.micro_batch = -1, .beside = beside}, OpId(), stand);
    return made;
  }

  /// Adds a term to those of the output in the stage.
  void add_term(std::size_t output, std::size_t at, ValueId value, Stand stand) {
    const auto [sum, is_new] = sums_.try_emplace({output, at}, value);
    if (is_new) return;
    Op op;
    op.name = "aten::add";
    op.overload = "Tensor";
    op.arguments = {{sum->second}, {value}, {std::int64_t{1}}};
    sum->second = add_to(at, std::move(op), step_.stages[at].graph.value(value),
                         needs_.model.value(needs_.model.outputs[output].value).producer, stand);
  }

  Stand behind_all() const {
    return {static_cast<std::int64_t>(order_.operators.size()), order_.count - 1};
  }

  void add_last_terms() {
    for (const Term& term : needs_.all.terms)
      if (const std::size_t at = needs_.stage_of(term); needs_.producer(term.value) == kNowhere)
        add_term(term.output, at, here(term.value, at), behind_all());
    for (std::size_t stage = 0; stage < step_.stages.size(); ++stage)
      add_given(stage, behind_all());
    for (const auto& [output, stage, value] : needs_.updated)
      sums_.try_emplace({output, stage}, here(value, stage));
  }

  /// Adds an output; zeros where a stage has a parameter without a term of its gradient.
  void add_output(std::size_t s, std::size_t o) {
    StageGraph& stage = step_.stages[s];
    graph::Output made = needs_.model.outputs[o];
    const auto sum = sums_.find({o, s});
    const bool is_there = sum != sums_.end();
    if (!made.of.is_none()) {
      const ValueId source = needs_.sources.at(made.of);
      const bool is_here = !places_.at(source, s).is_none();
      if (!is_here && !is_there) return;
      made.of = here(source, s);
    }
    if (is_there) {
      made.value = sum->second;
    } else {
      if (made.of.is_none() || made.kind == graph::OutputKind::kUpdate) return;
      const SymbolicArgument none{NoneArgument{}};
      Op zeros;
      zeros.name = "aten::zeros_like";
      zeros.arguments = {{made.of}, none, none, none, none, none};
      made.value = add_to(s, std::move(zeros), stage.graph.value(made.of), OpId(), behind_all());
    }
    stage.graph.outputs.push_back(made);
  }

  const StageNeeds& needs_;
  const OperatorOrder& order_;
  graph::Graph& all_;
  StagedStep& step_;
  const std::map<ValueId, ValueId> parameter_of_;  // of those that are gathered again
  ValuePlaces places_;
  std::map<ValueId, std::vector<Term>> terms_of_;                          // by value of all
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> terms_left_;  // output, stage
  std::vector<Term> made_terms_;                                           // by the current task
  /// By stage: outputs and terms that others have given it, and that are not added yet.
  std::map<std::size_t, std::vector<std::pair<std::size_t, ValueId>>> given_;
  std::map<std::pair<std::size_t, std::size_t>, ValueId> sums_;  // output, stage: of terms so far
};

}  // namespace

void build_stage_graphs(const StageNeeds& needs, const OperatorOrder& order, graph::Graph& all,
                        StagedStep& step) {
  StageBuilder(needs, order, all, step).run();
}

}  // namespace motley::synth
