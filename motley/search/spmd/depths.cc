#include "motley/search/spmd/depths.h"

#include <utility>

namespace motley::search {
namespace {

constexpr std::size_t kSearchedLayers = 3;

}  // namespace

std::shared_ptr<const Depths> find_depths(const graph::Graph& graph) {
  const graph::LayerChain chain = graph::find_layer_chain(graph);
  graph::ShortGraph searched = graph::shorten(graph, chain, kSearchedLayers);
  if (searched.left_out == 0) return nullptr;
  return std::make_shared<const Depths>(
      Depths{std::move(searched), graph::shorten(graph, chain, kSearchedLayers - 1)});
}

synth::Sharding restate(const synth::Sharding& sharding, const graph::ShortGraph& from,
                        const graph::ShortGraph& to) {
  synth::Sharding made = sharding;
  made.ops.assign(to.graph.ops.size(), {});
  made.sources.assign(to.graph.values.size(), graph::kWholeForm);
  made.gathered_again.clear();
  // The first operator represented by one determines its way.
  for (std::size_t i = to.of_op.size(); i-- > 0;)
    made.ops[to.of_op[i].index()] = sharding.ops[from.of_op[i].index()];
  for (std::size_t v = to.of_value.size(); v-- > 0;)
    if (!to.of_value[v].is_none() && !from.of_value[v].is_none()) {
      made.sources[to.of_value[v].index()] = sharding.sources[from.of_value[v].index()];
      if (sharding.gathered_again.contains(from.of_value[v]))
        made.gathered_again.insert(to.of_value[v]);
    }
  return made;
}

synth::Sharding spread_over_whole(const synth::Sharding& sharding, const graph::ShortGraph& from) {
  synth::Sharding made = sharding;
  made.ops.clear();
  for (const OpId op : from.of_op) made.ops.push_back(sharding.ops[op.index()]);
  made.sources.clear();
  for (const ValueId value : from.of_value)
    made.sources.push_back(value.is_none() ? graph::kWholeForm : sharding.sources[value.index()]);
  made.gathered_again.clear();
  for (std::size_t v = 0; v < from.of_value.size(); ++v)
    if (!from.of_value[v].is_none() && sharding.gathered_again.contains(from.of_value[v]))
      made.gathered_again.insert(ValueId(static_cast<std::int64_t>(v)));
  return made;
}

void set_origins(const graph::ShortGraph& from, program::Program& program) {
  for (program::DeviceProgram& device : program.devices)
    for (program::Instruction& instruction : device.instructions)
      if (!instruction.origin.is_none())
        instruction.origin = from.whole_op[instruction.origin.index()];
}

}  // namespace motley::search
