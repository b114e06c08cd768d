#include "motley/search/model_stages/stage_regions.h"

#include <map>
#include <set>
#include <string>

#include "motley/graph/reach.h"
#include "motley/graph/work.h"
#include "motley/plan/pass_order.h"

namespace motley::search {

plan::Region StageRegions::region(const PlannedStage& stage,
                                  const std::vector<Recompute>& again) const {
  const LayeredGraph& layered = programs_.graph();
  const graph::Graph& graph = layered.whole();
  const graph::ShortGraph& shown = layered.shown();
  const plan::Region& ways = programs_.units().ways(stage.unit);
  plan::Region made{programs_.units().devices(stage), ways.shares};
  std::set<ValueId> parameters;  // that its operators read
  const std::vector<std::size_t>& of_op = pieces_.cut.pieces.of_op;
  std::vector<Recompute> how;  // by piece of the stage
  const auto own = pieces_.cut.parts(stage.first, stage.end);
  for (std::size_t l = 0; l < own.size(); ++l)
    how.insert(how.end(), own[l].second - own[l].first, again[l]);
  for (std::size_t i = 0; i < of_op.size(); ++i) {
    if (of_op[i] < stage.first || of_op[i] >= stage.end) continue;
    plan::append(made.covers, static_cast<std::int64_t>(i));
    if (layered.done_again(how[of_op[i] - stage.first])[i] != 0)
      plan::append(made.recomputes, static_cast<std::int64_t>(i));
    if (!ways.operators.empty()) made.operators.push_back(ways.operators[shown.of_op[i].index()]);
    graph::for_each_value(graph.ops[i].arguments, [&](ValueId value) {
      if (graph.value(value).role == graph::ValueRole::kParameter) parameters.insert(value);
    });
  }
  std::map<std::string, const plan::KeptParameter*> kept;
  for (const plan::KeptParameter& each : ways.parameters) kept.emplace(each.name, &each);
  for (const ValueId parameter : parameters) {
    const auto known = kept.find(shown.graph.value(shown.of_value[parameter.index()]).name);
    if (known != kept.end())
      made.parameters.push_back(
          {graph.value(parameter).name, known->second->form, known->second->is_gathered_again});
  }
  // The only region of its replica has all.
  if (stage.first == 0 && stage.end == pieces_.size()) made.covers.clear();
  return made;
}

double StageRegions::speed(const PlannedStage& stage, std::int64_t micro_batch,
                           const std::vector<LayerWork>& work) const {
  const graph::Graph& graph = programs_.graph().whole();
  const auto [known, is_new] = seconds_.try_emplace(micro_batch);
  if (is_new) {
    known->second.assign(pieces_.size(), 0);
    const graph::Reach live = graph::find_live(graph);
    for (std::size_t i = 0; i < graph.ops.size(); ++i)
      if (live.holds(i))
        known->second[pieces_.cut.pieces.of_op[i]] += plan::order_seconds(
            graph::op_work(graph, OpId(static_cast<std::int64_t>(i)), {{"batch", micro_batch}}));
  }
  double some = 0, here = 0;
  for (std::size_t l = stage.first; l < stage.end; ++l) {
    some += known->second[l];
    here += (work[l].forward + work[l].backward).value;
  }
  return some / (here * programs_.units()[stage.unit].degree());
}

}  // namespace motley::search
