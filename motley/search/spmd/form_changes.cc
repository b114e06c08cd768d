#include "motley/search/spmd/form_changes.h"

#include <set>

namespace motley::search {

using graph::Form;

std::vector<FormChange> find_changes(const graph::Graph& graph, const SpmdSpace& space,
                                     const synth::Sharding& sharding) {
  std::vector<Form> homes = sharding.sources;
  for (std::size_t i = 0; i < graph.ops.size(); ++i)
    for (std::size_t r = 0; r < sharding.ops[i].results.size(); ++r)
      homes[graph.ops[i].outputs[r].index()] = sharding.ops[i].results[r];
  const auto wanted_by = [&](const Reader& reader) {
    const auto at = static_cast<std::size_t>(reader.operand);
    if (!reader.op.is_none()) return sharding.ops[reader.op.index()].operands[at];
    const graph::Output& output = graph.outputs[at];
    return output.kind == graph::OutputKind::kGradient ? sharding.sources[output.of.index()]
                                                       : graph::kWholeForm;
  };
  std::vector<FormChange> changes;
  for (std::size_t v = 0; v < homes.size(); ++v) {
    std::set<Form> made = {homes[v]};
    for (const Reader& reader : space.readers[v])
      if (const Form form = wanted_by(reader); made.insert(form).second)
        changes.push_back({ValueId(static_cast<std::int64_t>(v)), homes[v], form, reader});
  }
  return changes;
}

}  // namespace motley::search
