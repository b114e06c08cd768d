#include "motley/elastic/market.h"

#include <gtest/gtest.h>

namespace motley::elastic {
namespace {

constexpr const char* kHead = "schema = \"motley.market/1\"\nname = \"gcp\"\n";
constexpr const char* kOffer =
    "[[offer]]\nkind = \"v100-16g\"\nzone = \"us-west1-b\"\nprice_per_hour = 2.48\n";

TEST(Market, ReadsWhatIsForRent) {
  const auto market = parse_market(std::string(kHead) + R"(
lifetimes = "seen.json"
bandwidth = "10Gbps"
checkpoint_fixed = "3.5s"
checkpoint_rate = "50MB/s"
[[offer]]
kind = "v100-16g"
devices = 2
zone = "us-west1-b"
spot = true
price_per_hour = 1.5
most = 8
start_cold = "2min"
notice = "30s"
limit = "24h"
)" + kOffer,
                                   "m.toml");
  ASSERT_TRUE(market.has_value()) << market.error().message;
  EXPECT_EQ(market->lifetimes, "seen.json");
  EXPECT_EQ(market->bandwidth.value, 1.25e9);
  // 3.5 s, and 100 MB at 50 MB/s.
  EXPECT_DOUBLE_EQ(checkpoint_time(*market, Bytes(100'000'000)).value, 5.5);
  const Offer& spot = market->offers[0];
  EXPECT_EQ(name_of(spot), "2xv100-16g spot us-west1-b");
  EXPECT_EQ(spot.region, "us-west1");
  EXPECT_EQ(spot.start.cold, Seconds(120));
  EXPECT_EQ(spot.start.warm, StartTimes().warm);
  EXPECT_EQ(*spot.limit, Seconds(86400));
  EXPECT_EQ(name_of(market->offers[1]), "v100-16g on demand us-west1-b");
  EXPECT_EQ(parse_market(print_market(*market), "p").value(), *market);
}

TEST(Market, ReadsServers) {
  const auto market =
      parse_market(std::string(kHead) + "[server]\nservice = \"21ms\"\nprice_per_hour = 0.14\n" +
                       kOffer + "step = \"220ms\"\n",
                   "m.toml");
  ASSERT_TRUE(market.has_value()) << market.error().message;
  EXPECT_DOUBLE_EQ(market->server->service.value, 0.021);
  EXPECT_EQ(parse_market(print_market(*market), "p").value(), *market);
}

std::string market_fault(const std::string& text) {
  return parse_market(text, "m.toml").error().message;
}

TEST(Market, SaysWhatIsWrong) {
  const std::string head = kHead, offer = kOffer;
  EXPECT_EQ(market_fault(offer), "m.toml:1: no key 'schema', wanted schema = \"motley.market/1\"");
  EXPECT_EQ(market_fault("schema = \"motley.market/2\"\n"),
            "m.toml:1: schema \"motley.market/2\", wanted \"motley.market/1\"");
  EXPECT_EQ(market_fault(head), "m.toml:1: no [[offer]]: nothing is for rent");
  EXPECT_EQ(market_fault(head + "[[offer]]\nkind = \"v100\"\nzone = \"w\"\n"),
            "m.toml:3: [[offer]] has no key 'price_per_hour'");
  EXPECT_EQ(market_fault(head + offer + "price = 1\n"),
            "m.toml:7: unknown key 'price' in [[offer]]; known keys: kind, devices, zone, region, "
            "spot, price_per_hour, most, start_cold, start_warm, notice, limit, step, memory, "
            "losses_per_hour, threads, speed");
  EXPECT_EQ(
      market_fault(head + "ofer = 1\n" + offer),
      "m.toml:3: unknown key 'ofer' in the market file, did you mean 'offer'?; known keys: "
      "schema, name, lifetimes, bandwidth, latency, checkpoint_fixed, checkpoint_rate, offer, "
      "server");
  EXPECT_EQ(market_fault(head + offer + offer),
            "m.toml:7: 'v100-16g on demand us-west1-b' is offered twice");
  EXPECT_EQ(market_fault(head + offer + "notice = \"30s\"\n"),
            "m.toml:7: key 'notice': is of spot machines alone; say spot = true");
  EXPECT_EQ(market_fault(head + offer + "step = \"1s\"\n"),
            "m.toml:7: key 'step': is of workers that share servers; say [server], too");
  EXPECT_EQ(market_fault(head + offer + "most = 0\n"),
            "m.toml:7: key 'most': found 0, wanted 1 to 64");
  EXPECT_EQ(market_fault(head + offer + "start_cold = \"soon\"\n"),
            "m.toml:7: key 'start_cold': found 'soon', wanted a time such as 120s, 3ms, 100us");
  EXPECT_EQ(market_fault(head + "[[offer]]\nkind = \"v\"\nzone = \"w\"\nprice_per_hour = -1\n"),
            "m.toml:6: key 'price_per_hour': found -1, wanted a number from 0 on");
  EXPECT_EQ(market_fault(head + "bandwidth = inf\n" + offer),
            "m.toml:3: key 'bandwidth': found inf, wanted more than 0");
  EXPECT_EQ(market_fault(head + "lifetimes = \"\"\n" + offer),
            "m.toml:3: key 'lifetimes': wanted printable ASCII characters");
  const std::string server = "[server]\nservice = \"1s\"\nprice_per_hour = 1\n";
  EXPECT_EQ(market_fault(head + server + offer),
            "m.toml:6: [[offer]] has no key 'step', as workers of [server] need");
  EXPECT_EQ(market_fault(head + server + offer + "step = \"0.5s\"\n"),
            "m.toml:10: key 'step': is less than the server's 'service', which is part of it");
}

}  // namespace
}  // namespace motley::elastic
