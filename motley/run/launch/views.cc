#include "motley/run/launch/views.h"

#include <algorithm>
#include <utility>

namespace motley::run {

bool Views::is_quorum(const std::set<std::string>& hosts) const {
  return std::all_of(views_.begin(), views_.end(), [&](const Versioned& each) {
    const std::set<std::string>& all = each.view.hosts;
    const std::size_t there = static_cast<std::size_t>(std::count_if(
        all.begin(), all.end(), [&](const std::string& host) { return hosts.contains(host); }));
    const bool led = each.view.coordinator == self_ && hosts.contains(self_);
    return 2 * there > all.size() || (2 * there == all.size() && led);
  });
}

bool Views::propose(std::int64_t version, std::set<std::string> hosts) {
  if (!is_quorum(hosts)) return false;
  views_.push_back({version, {std::move(hosts), self_}});
  return true;
}

void Views::settle(const std::function<std::int64_t(const std::string& host)>& remembered) {
  const auto known = std::find_if(views_.rbegin(), views_.rend(), [&](const Versioned& each) {
    return std::all_of(
        each.view.hosts.begin(), each.view.hosts.end(),
        [&](const std::string& host) { return host == self_ || remembered(host) >= each.version; });
  });
  if (known != views_.rend()) views_.erase(views_.begin(), std::prev(known.base()));
}

}  // namespace motley::run
