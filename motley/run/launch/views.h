#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace motley::run {

/// The membership of a job as known to the hosts that decide who leads. It ensures that a
/// partitioned network never leaves two halves that both train on.
///
/// A view alone counts only once all its hosts know it; until then the views before it count too. A
/// coordinator, or a candidate, needs a quorum of each view that counts: more than half of its
/// hosts, or exactly half including the coordinator that made it. Each view is a quorum of the
/// views before it, so a quorum of an old view contains a host that knows the new one.
class Views {
 public:
  struct View {
    std::set<std::string> hosts;
    std::string coordinator;
    bool operator==(const View&) const = default;
  };
  /// `self`: the leading host; `known`: the first view that counts.
  Views(std::string self, View known) : self_(std::move(self)), views_({{0, std::move(known)}}) {}

  /// Tells whether these hosts suffice to lead.
  bool is_quorum(const std::set<std::string>& hosts) const;
  /// Proposes a view under this version of the hosts' memory. False: it is not a quorum.
  bool propose(std::int64_t version, std::set<std::string> hosts);
  /// Updates which views count: one that all its hosts remember counts alone.
  void settle(const std::function<std::int64_t(const std::string& host)>& remembered);
  const View& latest() const { return views_.back().view; }
  /// Tells whether only that one counts.
  bool is_settled() const { return views_.size() == 1; }

 private:
  struct Versioned {
    std::int64_t version = 0;
    View view;
  };
  std::string self_;
  std::vector<Versioned> views_;  // that count
};

}  // namespace motley::run
