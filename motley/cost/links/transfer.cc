#include "motley/cost/links/transfer.h"

#include <algorithm>
#include <utility>

namespace motley::cost {

namespace {

/// If there are about as many uses as links, sums per link are faster than sorting.
constexpr std::size_t kLinksOfUse = 8;

void add_up_by_link(std::vector<LinkUse>& uses, std::size_t links) {
  std::vector<double> weights(links, 0.0);
  for (const LinkUse& use : uses) weights[static_cast<std::size_t>(use.link)] += use.weight;
  uses.clear();
  for (std::size_t link = 0; link < links; ++link)
    if (weights[link] > 0) uses.push_back({static_cast<std::int32_t>(link), weights[link]});
}

}  // namespace

void merge_uses(Flow& flow) {
  std::int32_t last = -1;
  for (const LinkUse& use : flow.uses) last = std::max(last, use.link);
  const auto links = static_cast<std::size_t>(last + 1);
  if (links <= kLinksOfUse * flow.uses.size()) return add_up_by_link(flow.uses, links);
  std::stable_sort(flow.uses.begin(), flow.uses.end(),
                   [](const LinkUse& a, const LinkUse& b) { return a.link < b.link; });
  std::vector<LinkUse> merged;
  for (const LinkUse& use : flow.uses) {
    if (!merged.empty() && merged.back().link == use.link) {
      merged.back().weight += use.weight;
    } else {
      merged.push_back(use);
    }
  }
  flow.uses = std::move(merged);
}

}  // namespace motley::cost
