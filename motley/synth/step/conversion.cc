#include "motley/synth/step/conversion.h"

#include "motley/program/parts.h"

namespace motley::synth {

using graph::Form;
using graph::FormKind;

std::string_view find_exchange(const Form& from, const Form& to) {
  if (from == to || from.kind == FormKind::kWhole || to.kind == FormKind::kPartial) return {};
  if (from.kind == FormKind::kPartial)
    return to.kind == FormKind::kWhole ? program::kAllReduce : program::kReduceScatter;
  if (to.kind == FormKind::kWhole) return program::kAllGather;
  return from.dim != to.dim ? program::kAllToAll : std::string_view{};
}

bool goes_over_whole(const Form& from, const Form& to) {
  return from.kind == FormKind::kSharded && from != to && to.kind != FormKind::kWhole &&
         find_exchange(from, to).empty();
}

std::vector<Conversion> find_conversions(const std::vector<std::int64_t>& shape, const Form& from,
                                         const Form& to) {
  if (from == to) return {};
  if (goes_over_whole(from, to)) {
    std::vector<Conversion> steps = find_conversions(shape, from, graph::kWholeForm);
    steps.push_back(find_conversions(shape, graph::kWholeForm, to).front());
    return steps;
  }
  const std::string_view exchange = find_exchange(from, to);
  const auto joined = [&](const Form& parts, const Form& whole) {
    return slab_of(shape, parts).before == 1 ? LocalCopy{} : LocalCopy{"motley::join", whole};
  };
  if (to.kind == FormKind::kPartial)
    return {{{}, {}, {}, {"aten::zeros_like", graph::kWholeForm, 1}}};
  if (exchange.empty()) return {{{}, {}, {}, {"motley::part", to}}};
  if (exchange == program::kAllReduce)
    return {{{"aten::clone", graph::kWholeForm}, exchange, {}, {}}};
  if (exchange == program::kReduceScatter)
    return {{{"motley::cut", graph::kWholeForm}, exchange, to, joined(to, to)}};
  if (exchange == program::kAllGather)
    return {{{"motley::cut", from}, exchange, from, joined(from, graph::kWholeForm)}};
  return {{{"motley::cut", from}, exchange, {}, joined(from, to)}};
}

}  // namespace motley::synth
