#include "motley/run/hosts/wire.h"

#include <gtest/gtest.h>

#include <future>
#include <vector>

namespace motley::run {
namespace {

WireAsk ask(WireAsk::What what, double seconds = 0.2) { return {what, Seconds(seconds)}; }

TEST(Wire, PingsAndSends) {
  const auto server = WireServer::start("127.0.0.1", "word").value();
  const auto pinged =
      measure_wire("127.0.0.1", server->port(), "word", ask(WireAsk::What::kPing)).value();
  EXPECT_GT(pinged.latency.value, 0);
  EXPECT_EQ(pinged.bandwidth.value, 0);
  const auto sent =
      measure_wire("127.0.0.1", server->port(), "word", ask(WireAsk::What::kSettle)).value();
  EXPECT_GT(sent.bandwidth.value, 1e6);
}

TEST(Wire, SeveralAreAnsweredAtTheSameTime) {
  const auto server = WireServer::start("127.0.0.1", "word").value();
  std::vector<std::future<Result<WireTimes>>> flows;
  for (int i = 0; i < 3; ++i)
    flows.push_back(std::async(std::launch::async, measure_wire, "127.0.0.1", server->port(),
                               "word", ask(WireAsk::What::kTogether)));
  for (auto& flow : flows) EXPECT_GT(flow.get().value().bandwidth.value, 0);
}

TEST(Wire, WhoDoesNotKnowTheWordIsNotAnswered) {
  const auto server = WireServer::start("127.0.0.1", "word").value();
  const auto times = measure_wire("127.0.0.1", server->port(), "none", ask(WireAsk::What::kPing));
  ASSERT_FALSE(times);
  EXPECT_EQ(times.error().code, "host.wire");
}

TEST(Wire, NobodyThereIsSaidWithWhatMayBeTheCause) {
  const auto times = measure_wire("127.0.0.1", 1, "word", ask(WireAsk::What::kPing));
  ASSERT_FALSE(times);
  EXPECT_EQ(times.error().message,
            "no connection to 127.0.0.1 port 1: Connection refused; a firewall may let ssh through "
            "and no other port");
}

}  // namespace
}  // namespace motley::run
