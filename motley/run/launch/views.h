#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace motley::run {

/// Which hosts a job has, as those know it who decide who leads: so that a network that is cut
/// never leaves two halves, each of which trains on.
///
/// A view is known by all its hosts before it alone counts: until then the ones before it count as
/// well. Who leads, or wants to, must have a quorum of each of them: more than half of its hosts,
/// or just half with the one that led when it was made. Each view is a quorum of those before it,
/// so that whoever has a quorum of an old one meets somebody who knows the new one.
class Views {
 public:
  struct View {
    std::set<std::string> hosts;
    std::string coordinator;
    bool operator==(const View&) const = default;
  };
  /// `self`: of the host that leads; `known`: the view that counts at first.
  Views(std::string self, View known) : self_(std::move(self)), views_({{0, std::move(known)}}) {}

  /// May who has these hosts lead?
  bool is_quorum(const std::set<std::string>& hosts) const;
  /// A view that is told of by this version of what hosts remember. False: it is no quorum.
  bool propose(std::int64_t version, std::set<std::string> hosts);
  /// What hosts are known to remember: a view that all its hosts know counts alone.
  void settle(const std::function<std::int64_t(const std::string& host)>& remembered);
  /// That was proposed last.
  const View& latest() const { return views_.back().view; }
  /// Is that the only one that counts?
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
