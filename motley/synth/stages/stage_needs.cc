#include "motley/synth/stages/stage_needs.h"

#include <algorithm>
#include <string>

namespace motley::synth {
namespace {

void insert(std::vector<std::size_t>& stages, std::size_t stage) {
  const auto at = std::lower_bound(stages.begin(), stages.end(), stage);
  if (at == stages.end() || *at != stage) stages.insert(at, stage);
}

/// Finds sources by their names.
void find_sources(StageNeeds& needs) {
  std::map<std::pair<graph::ValueRole, std::string>, ValueId> named;
  const auto for_each_source = [](const graph::Graph& graph, const auto& visit) {
    for (std::size_t v = 0; v < graph.values.size(); ++v)
      if (graph.values[v].producer.is_none())
        visit(std::pair(graph.values[v].role, graph.values[v].name), ValueId(v));
  };
  for_each_source(needs.all.graph,
                  [&](const auto& name, ValueId value) { named.try_emplace(name, value); });
  for_each_source(needs.model, [&](const auto& name, ValueId value) {
    if (const auto found = named.find(name); found != named.end())
      needs.sources[value] = found->second;
  });
}

void need(StageNeeds& needs, ValueId value, std::size_t stage) {
  const StagedOp from = needs.maker(value, stage);
  if (from.op == kNowhere) return;
  insert(needs.stages_of[from.op], from.stage);
  if (from.stage != stage) needs.passing[from].insert({value, stage});
}

void find_operators(StageNeeds& needs) {
  needs.stages_of.resize(needs.all.graph.ops.size());
  for (const Accumulation::Term& term : needs.all.terms)
    if (const std::size_t op = needs.producer(term.value); op != kNowhere)
      insert(needs.stages_of[op], needs.stage_of(term));
  for (std::size_t op = needs.stages_of.size(); op-- > 0;) {
    if (needs.stages_of[op].empty()) continue;
    // All replicas take part in a sum.
    for (std::size_t r = 0; needs.is_sum(op) && r < needs.first_stage.size(); ++r)
      insert(needs.stages_of[op], needs.home(op, r));
    for (const std::size_t stage : needs.stages_of[op])
      needs.for_each_operand({op, stage}, [&](ValueId value) { need(needs, value, stage); });
  }
}

/// Finds readers of sources, and of all values if the model updates buffers.
void find_readers(StageNeeds& needs) {
  const std::vector<graph::Output>& outputs = needs.model.outputs;
  const bool has_updates = std::any_of(outputs.begin(), outputs.end(), [](const auto& each) {
    return each.kind == graph::OutputKind::kUpdate;
  });
  needs.readers.resize(needs.all.graph.values.size());
  for (std::size_t op = 0; op < needs.stages_of.size(); ++op)
    graph::for_each_value(needs.all.graph.ops[op].arguments, [&](ValueId value) {
      if (has_updates || needs.producer(value) == kNowhere)
        needs.readers[value.index()].insert(needs.stages_of[op].begin(), needs.stages_of[op].end());
    });
  for (const auto& [again, parameter] : needs.all.again)
    needs.readers[parameter.index()].insert(needs.readers[again.index()].begin(),
                                            needs.readers[again.index()].end());
}

/// Passes the new value of a buffer to all stages of the replica that have the buffer.
void share_updates(StageNeeds& needs) {
  for (const Accumulation::Term& term : needs.all.terms) {
    const graph::Output& output = needs.model.outputs[term.output];
    if (output.kind != graph::OutputKind::kUpdate) continue;
    const std::size_t producer = needs.producer(term.value);
    const std::size_t at = producer == kNowhere ? kNowhere : needs.home(producer, term.replica);
    if (at == kNowhere) continue;
    for (const std::size_t stage : needs.readers[needs.sources.at(output.of).index()]) {
      if (stage == at || needs.stages[stage].replica != term.replica) continue;
      needs.passing[{producer, at}].insert({term.value, stage});
      needs.updated.insert({term.output, stage, term.value});
    }
  }
}

}  // namespace

std::size_t StageNeeds::home(std::size_t op, std::size_t replica) const {
  const Copy& copy = all.copies[op];
  const OpId of = copy.of.is_none() ? copy.beside : copy.of;
  return of.is_none() ? kNowhere : first_stage[replica] + regions[replica][of.index()];
}

std::size_t StageNeeds::stage_of(const Accumulation::Term& term) const {
  const std::size_t op = producer(term.value);
  const std::size_t at = op == kNowhere ? kNowhere : home(op, term.replica);
  return at == kNowhere ? first_stage[term.replica] : at;
}

StagedOp StageNeeds::maker(ValueId value, std::size_t stage) const {
  const std::size_t op = producer(value);
  const std::size_t at = op == kNowhere ? kNowhere : home(op, stages[stage].replica);
  return {op, at == kNowhere ? stage : at};
}

ValueId StageNeeds::own_term(std::size_t op, std::size_t stage) const {
  const auto& terms = std::get<graph::SymbolicArguments>(all.graph.ops[op].arguments[0].value);
  return std::get<ValueId>(terms[stages[stage].replica].value);
}

StageNeeds find_stage_needs(const graph::Graph& model, const Accumulation& all,
                            const std::vector<StageGraph>& stages,
                            std::vector<std::vector<std::size_t>> regions) {
  StageNeeds needs{model, all, stages, std::move(regions)};
  for (std::size_t s = 0; s < stages.size(); ++s)
    if (stages[s].replica == needs.first_stage.size()) needs.first_stage.push_back(s);
  for (const graph::Value& value : all.graph.values)
    needs.producers.push_back(value.producer.is_none() ? kNowhere : value.producer.index());
  find_sources(needs);
  find_operators(needs);
  find_readers(needs);
  share_updates(needs);
  return needs;
}

}  // namespace motley::synth
