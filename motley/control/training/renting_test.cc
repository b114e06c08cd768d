#include "motley/control/training/renting.h"

#include <gmock/gmock.h>

#include "motley/testing/small_inputs.h"

namespace motley::control {
namespace {

constexpr const char* kRented = R"(schema = "motley.cluster/1"
name = "rented"
[[node]]
name = "own"
  [[node.device]]
  kind = "cpu"
  speed = 0.5
[[node]]
name = "b"
spot = true
zone = "z-1"
  [[node.device]]
  kind = "cpu"
  count = 2
  speed = 0.5
[[node]]
name = "c"
zone = "z-1"
  [[node.device]]
  kind = "cpu"
  threads = 4
)";

elastic::Market market(const std::string& more = "") {
  return elastic::parse_market(R"(schema = "motley.market/1"
name = "m"
[[offer]]
kind = "cpu"
zone = "z-1"
price_per_hour = 3
[[offer]]
kind = "cpu"
devices = 2
zone = "z-1"
spot = true
losses_per_hour = 0.36
price_per_hour = 1
)" + more,
                               "m")
      .value();
}

TEST(FindMachines, NodesThatSayAZoneAreRented) {
  const Inputs inputs = small_inputs(kRented, 8);
  const auto machines = find_machines(market(), inputs.cluster, inputs.devices, {"c:0"});
  ASSERT_TRUE(machines.has_value()) << machines.error().message;
  ASSERT_EQ(machines->size(), 3u);
  EXPECT_EQ((*machines)[0].offer, std::nullopt);
  EXPECT_EQ((*machines)[1].offer, 1u);
  EXPECT_EQ((*machines)[1].devices, (std::vector<std::string>{"b:0", "b:1"}));
  EXPECT_EQ((*machines)[1].speed, 1);
  EXPECT_EQ((*machines)[2].offer, 0u);
  EXPECT_EQ((*machines)[2].speed, 4);
  EXPECT_TRUE((*machines)[1].is_there);
  EXPECT_FALSE((*machines)[2].is_there);
}

std::string fault(const elastic::Market& of, const char* cluster,
                  const std::vector<std::string>& absent = {}) {
  const Inputs inputs = small_inputs(cluster, 8);
  const auto found = find_machines(of, inputs.cluster, inputs.devices, absent);
  return found ? "none" : found.error().code + ": " + found.error().message;
}

TEST(FindMachines, SaysWhatDoesNotFit) {
  EXPECT_EQ(
      fault(market(), kTwoCpus),
      "market.node: no [[node]] of the cluster says a zone, so none is rented; the market has "
      "cpu on demand z-1, 2xcpu spot z-1");
  EXPECT_EQ(fault(market(), kRented, {"b:0"}),
            "market.absent: node 'b': 1 of its 2 devices are absent; a rented machine is there or "
            "not");
  EXPECT_EQ(
      fault(market("[[offer]]\nkind = \"k80\"\nzone = \"z-1\"\nprice_per_hour = 1\n"), kRented),
      "market.offer: offer 'k80 on demand z-1': no device of the cluster is of kind 'k80'");
  std::string other(kRented);
  other.replace(other.find("zone = \"z-1\""), 12, "zone = \"z-2\"");
  EXPECT_EQ(
      fault(market(), other.c_str()),
      "market.node: node 'b': the market has no offer of 2xcpu spot z-2; it has cpu on demand "
      "z-1, 2xcpu spot z-1");
}

TEST(StepsBetweenCheckpoints, FollowTheHazardOfRentedMachines) {
  const MarketQuestion question{.market = market()};
  elastic::JobMachine spot{.name = "b", .devices = {"b:0"}, .offer = 1};
  // One machine has 1e-4 losses a second, and the rest of the world 1e-6. A checkpoint takes 4 s.
  // Young's formula gives sqrt(2 4 / 1.01e-4) = 281.4 s, so 140 steps of 2 s.
  EXPECT_EQ(steps_between_checkpoints(question, {spot}, Seconds(2), Bytes(0)), 140);
  elastic::JobMachine own{.name = "own", .devices = {"own:0"}};
  EXPECT_EQ(steps_between_checkpoints(question, {own, spot}, Seconds(2), Bytes(0)), std::nullopt);
}

}  // namespace
}  // namespace motley::control
