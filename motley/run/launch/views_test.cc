#include "motley/run/launch/views.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <utility>

namespace motley::run {
namespace {

using Hosts = std::set<std::string>;

TEST(Views, MoreThanHalfIsAQuorumAndJustHalfWithTheCoordinatorThatMadeTheView) {
  const Views first("a", {{"a", "b", "c", "d"}, "a"});
  EXPECT_TRUE(first.is_quorum({"a", "b"}));
  EXPECT_FALSE(first.is_quorum({"a"}));
  EXPECT_FALSE(first.is_quorum({"b", "c"}));
  const Views other("b", {{"a", "b", "c", "d"}, "a"});
  EXPECT_FALSE(other.is_quorum({"b", "c"}));
  EXPECT_TRUE(other.is_quorum({"b", "c", "d"}));
}

TEST(Views, AViewCountsAloneOnceAllItsHostsKnowIt) {
  Views views("a", {{"a", "b", "c"}, "a"});
  EXPECT_FALSE(views.propose(1, {"a"}));
  ASSERT_TRUE(views.propose(1, {"a", "b"}));
  views.settle([](const std::string&) { return 0; });
  EXPECT_FALSE(views.is_settled());
  EXPECT_FALSE(views.is_quorum({"a"}));  // not a quorum of the first view
  views.settle([](const std::string& host) { return host == "b" ? 1 : 0; });
  EXPECT_TRUE(views.is_settled());
  EXPECT_TRUE(views.is_quorum({"a"}));
}

TEST(Views, AHostThatComesCountsBeforeAllKnowIt) {
  Views views("a", {{"a", "b"}, "a"});
  EXPECT_TRUE(views.is_quorum({"a"}));
  ASSERT_TRUE(views.propose(1, {"a", "b", "c"}));
  EXPECT_FALSE(views.is_quorum({"a"}));  // b and c may know it, and take over
}

/// Hosts, any of which may lead, in a network that is partitioned and healed at random.
class World {
 public:
  explicit World(std::uint64_t seed, int hosts) : random_(seed) {
    for (int i = 0; i < hosts; ++i) names_.push_back(std::string(1, static_cast<char>('a' + i)));
    const Views::View all{{names_.begin(), names_.end()}, names_.front()};
    for (const std::string& host : names_) agents_[host] = {names_.front(), {0, 0}, all};
    leads_.emplace(names_.front(), Coordinator{Views(names_.front(), all), 0, 0, all.hosts});
    for (const std::string& host : names_) side_[host] = 0;
  }

  void act() {
    switch (draw(5)) {
      case 0:  // a partition into at most three parts
        for (auto& [host, side] : side_) side = draw(3);
        break;
      case 1:
        for (auto& [host, side] : side_) side = 0;
        break;
      case 2: {
        Coordinator* coordinator = any_coordinator();
        if (coordinator != nullptr) tell(*coordinator);
        break;
      }
      default:
        take_over(names_[static_cast<std::size_t>(draw(static_cast<int>(names_.size())))]);
    }
    // A host cut off from its coordinator learns of no other before it asks.
    for (auto& [host, agent] : agents_)
      if (!agent.coordinator.empty() && side_[agent.coordinator] != side_[host])
        agent.coordinator.clear();
  }

  int leading() const {
    int count = 0;
    for (const auto& [host, coordinator] : leads_)
      count += coordinator.views.is_quorum(led_by(host)) ? 1 : 0;
    return count;
  }
  int changes() const { return changes_; }

 private:
  using Version = std::pair<int, std::int64_t>;  // the coordinator's epoch, and its own version
  struct Agent {
    std::string coordinator;  // "": none
    Version version;
    Views::View view;
  };
  struct Coordinator {
    Views views;
    int epoch = 0;
    std::int64_t version = 0;
    Hosts wanted;
    std::map<std::string, std::int64_t> known = {};
  };

  int draw(int below) { return std::uniform_int_distribution<int>(0, below - 1)(random_); }

  /// A coordinator's own host has an agent too, without weight.
  Hosts led_by(const std::string& coordinator) const {
    Hosts hosts = {coordinator};
    for (const auto& [host, agent] : agents_)
      if (agent.coordinator == coordinator) hosts.insert(host);
    return hosts;
  }

  Coordinator* any_coordinator() {
    auto each = leads_.begin();
    std::advance(each, draw(static_cast<int>(leads_.size())));
    teller_ = each->first;
    return &each->second;
  }

  /// Proposes its view, which some of its hosts receive.
  void tell(Coordinator& coordinator) {
    if (!coordinator.views.propose(coordinator.version + 1, led_by(teller_))) return;
    ++coordinator.version;
    for (auto& [host, agent] : agents_) {
      if (agent.coordinator != teller_ || draw(3) == 0) continue;
      agent.version = {coordinator.epoch, coordinator.version};
      agent.view = coordinator.views.latest();
      if (draw(3) > 0) coordinator.known[host] = coordinator.version;  // else its answer is lost
    }
    coordinator.views.settle([&](const std::string& host) { return coordinator.known[host]; });
  }

  void take_over(const std::string& host) {
    if (leads_.contains(host)) return;
    Hosts granted;
    const Agent* newest = nullptr;
    for (const auto& [name, agent] : agents_)
      if (agent.coordinator.empty() && side_[name] == side_[host]) {
        granted.insert(name);
        if (newest == nullptr || agent.version > newest->version) newest = &agent;
      }
    if (newest == nullptr || !granted.contains(host)) return;
    const Views views(host, newest->view);
    if (!views.is_quorum(granted)) return;
    const int epoch = newest->version.first + 1;
    leads_.emplace(host, Coordinator{views, epoch, newest->version.second, newest->view.hosts});
    for (const std::string& name : granted) agents_[name].coordinator = host;
    ++changes_;
  }

  std::mt19937_64 random_;
  std::vector<std::string> names_;
  std::map<std::string, Agent> agents_;
  std::map<std::string, Coordinator> leads_;
  std::map<std::string, int> side_;
  std::string teller_;
  int changes_ = 0;
};

TEST(Views, NeverTwoCoordinator) {
  int changes = 0;
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    World world(seed, 2 + static_cast<int>(seed % 6));
    for (int i = 0; i < 60; ++i) {
      world.act();
      ASSERT_LE(world.leading(), 1) << "seed " << seed << ", act " << i;
    }
    changes += world.changes();
  }
  EXPECT_GT(changes, 1000);
}

}  // namespace
}  // namespace motley::run
