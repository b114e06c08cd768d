#include "motley/cost/links/transfer.h"

#include <algorithm>
#include <utility>

namespace motley::cost {

void merge_uses(Flow& flow) {
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
