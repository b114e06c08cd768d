#include "motley/search/price/equal_programs.h"

#include <cstddef>

#include "motley/base/parallel.h"

namespace motley::search {
namespace {

Result<EqualPrograms::Programs> lower_all(const graph::Graph& graph,
                                          const std::vector<std::int64_t>& samples, int ranks,
                                          const synth::LowerOptions& lowering) {
  std::vector<Result<program::DeviceProgram>> lowered(samples.size());
  run_in_parallel(samples.size(), [&](std::size_t i) {
    lowered[i] = synth::lower_first(graph, {samples[i], ranks}, lowering);
  });
  std::vector<program::DeviceProgram> programs;
  for (auto& each : lowered) {
    if (!each) return tl::make_unexpected(each.error());
    programs.push_back(std::move(*each));
  }
  return std::make_shared<const std::vector<program::DeviceProgram>>(std::move(programs));
}

}  // namespace

EqualPrograms::Entry& EqualPrograms::entry(const std::vector<std::int64_t>& samples, int ranks,
                                           const synth::LowerOptions& lowering) {
  const std::lock_guard lock(mutex_);
  auto& identical = entries_[{samples, ranks}];
  for (const auto& each : identical)
    if (each->lowering == lowering) return *each;
  identical.push_back(std::make_unique<Entry>());
  identical.back()->lowering = lowering;
  return *identical.back();
}

Result<EqualPrograms::Programs> EqualPrograms::find(const graph::Graph& graph,
                                                    const std::vector<std::int64_t>& samples,
                                                    int ranks,
                                                    const synth::LowerOptions& lowering) {
  Entry& found = entry(samples, ranks, lowering);
  std::call_once(found.once, [&] { found.made = lower_all(graph, samples, ranks, lowering); });
  return found.made;
}

}  // namespace motley::search
