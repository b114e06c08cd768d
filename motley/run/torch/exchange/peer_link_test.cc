#include "motley/run/torch/exchange/peer_link.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <thread>
#include <vector>

#include "motley/run/torch/exchange/host_communicator.h"
#include "motley/testing/thread_ranks.h"

namespace motley::run {
namespace {

class Peers : public RendezvousTest, public ::testing::WithParamInterface<bool> {
 protected:
  static std::vector<PairOptions> all_pairs(int ranks, EmulatedLink link = {}) {
    std::vector<PairOptions> pairs;
    for (int source = 0; source < ranks; ++source)
      for (int target = 0; target < ranks; ++target)
        if (source != target) pairs.push_back({source, target, link});
    return pairs;
  }
  CommunicatorOptions options(int ranks, Seconds timeout, EmulatedLink link = {}) const {
    CommunicatorOptions made;
    made.shared_memory = GetParam();
    made.timeout = timeout;
    made.pairs = all_pairs(ranks, link);
    made.groups.resize(1);
    for (int rank = 0; rank < ranks; ++rank) made.groups[0].members.push_back(rank);
    return made;
  }
};
INSTANTIATE_TEST_SUITE_P(Host, Peers, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "SharedMemory" : "Gloo"; });

double elapsed(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Three ranks with one thread per direction, and sums of a group beside them. Messages of one
// direction stay in order, even of unequal sizes and types.
TEST_P(Peers, AllWaysAndAGroupAreServedAtOnce) {
  constexpr int kRanks = 3, kMessages = 20;
  on_ranks(kRanks, [&](Rendezvous& rendezvous) {
    auto made = make_host_communicator(rendezvous, options(kRanks, Seconds(20)));
    ASSERT_TRUE(made.has_value()) << made.error().message;
    Communicator& communicator = **made;
    const int own = rendezvous.rank();
    const auto message = [](int source, int target, int n) {
      const std::int64_t size = n % 3 == 0 ? 1'000'000 : n % 3;
      const auto type = n % 2 == 0 ? at::kFloat : at::kBool;
      return at::arange(size, at::kInt).add(100 * source + 10 * target + n).remainder(127).to(type);
    };
    std::vector<std::thread> ways;
    for (int peer = 0; peer < kRanks; ++peer) {
      if (peer == own) continue;
      ways.emplace_back([&, peer] {
        for (int n = 0; n < kMessages; ++n)
          EXPECT_TRUE(communicator.send(peer, message(own, peer, n)).has_value());
      });
      ways.emplace_back([&, peer] {
        for (int n = 0; n < kMessages; ++n) {
          const at::Tensor wanted = message(peer, own, n);
          at::Tensor got = at::zeros(wanted.sizes(), wanted.options());
          ASSERT_TRUE(communicator.receive(peer, got).has_value());
          EXPECT_TRUE(at::equal(got, wanted)) << peer << " to " << own << ", " << n;
        }
      });
    }
    for (int n = 0; n < kMessages; ++n) {
      at::Tensor sum = at::full({100}, own + n);
      ASSERT_TRUE(communicator.all_reduce(GroupId(0), sum).has_value());
      EXPECT_EQ(sum[99].item<double>(), 3.0 + 3 * n);
    }
    for (std::thread& way : ways) way.join();
  });
}

TEST_P(Peers, ASilentPeerIsATimeoutThatNamesIt) {
  on_ranks(2, [&](Rendezvous& rendezvous) {
    auto made = make_host_communicator(rendezvous, options(2, Seconds(0.5)));
    ASSERT_TRUE(made.has_value()) << made.error().message;
    if (rendezvous.rank() == 1) {
      (void)rendezvous.get("over");
      return;
    }
    at::Tensor tensor = at::zeros({100});
    const auto late = (*made)->receive(1, tensor);
    (void)rendezvous.set("over", "");
    ASSERT_FALSE(late.has_value());
    EXPECT_EQ(late.error().code, "run.timeout");
    const std::string start =
        "rank 0: receive from rank 1: 400 bytes not done after 0.5 s, rank 1 has not come";
    EXPECT_TRUE(late.error().message.starts_with(start)) << late.error().message;
    EXPECT_EQ((*made)->send(1, tensor).error().message,
              "rank 0: send to rank 1 after an earlier error");
  });
}

TEST_P(Peers, OfAClosedRankFailAtOnceAndNameIt) {
  for (const bool is_send : {true, false}) {
    std::filesystem::remove(dir_ + "/rendezvous");
    on_ranks(2, [&](Rendezvous& rendezvous) {
      auto made = make_host_communicator(rendezvous, options(2, Seconds(20)));
      ASSERT_TRUE(made.has_value()) << made.error().message;
      ASSERT_TRUE(rendezvous.barrier("made", Seconds(10)).has_value());
      if (rendezvous.rank() == 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the other blocks by then
        return (*made)->close();
      }
      const auto begin = std::chrono::steady_clock::now();
      at::Tensor tensor = at::zeros({1'000'000});
      const auto failed = is_send ? (*made)->send(1, tensor) : (*made)->receive(1, tensor);
      ASSERT_FALSE(failed.has_value());
      EXPECT_EQ(failed.error().code, "run.peer-lost") << failed.error().message;
      const std::string start = std::string("rank 0: ") + (is_send ? "send to" : "receive from") +
                                " rank 1: 4000000 bytes failed, rank 1 has ended";
      EXPECT_TRUE(failed.error().message.starts_with(start)) << failed.error().message;
      EXPECT_LT(elapsed(begin), 10);
    });
  }
}

TEST_P(Peers, ClosingWakesTheOtherThreadsOfThisRank) {
  on_ranks(2, [&](Rendezvous& rendezvous) {
    auto made = make_host_communicator(rendezvous, options(2, Seconds(20)));
    ASSERT_TRUE(made.has_value()) << made.error().message;
    if (rendezvous.rank() == 1) {
      (void)rendezvous.get("over");
      return;
    }
    const auto begin = std::chrono::steady_clock::now();
    std::vector<std::thread> threads;
    for (const bool is_send : {true, false})
      threads.emplace_back([&, is_send] {
        at::Tensor tensor = at::zeros({1'000'000});
        const auto failed = is_send ? (*made)->send(1, tensor) : (*made)->receive(1, tensor);
        ASSERT_FALSE(failed.has_value());
        EXPECT_EQ(failed.error().code, "run.closed");
        EXPECT_EQ(failed.error().message, std::string("rank 0: ") +
                                              (is_send ? "send to" : "receive from") +
                                              " rank 1 was ended by an earlier error");
      });
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    (*made)->close();
    for (std::thread& thread : threads) thread.join();
    EXPECT_LT(elapsed(begin), 10);
    (void)rendezvous.set("over", "");
  });
}

// 1 MB at 10 MB/s after 20 ms: 0.12 s, on both. The other direction runs at the same time.
TEST_P(Peers, AnEmulatedLinkHoldsEachWay) {
  on_ranks(2, [&](Rendezvous& rendezvous) {
    auto made = make_host_communicator(rendezvous,
                                       options(2, Seconds(10), {.rate = 1e7, .latency_s = 0.02}));
    ASSERT_TRUE(made.has_value()) << made.error().message;
    const int peer = 1 - rendezvous.rank();
    ASSERT_TRUE(rendezvous.barrier("start", Seconds(10)).has_value());
    const auto begin = std::chrono::steady_clock::now();
    std::thread sender([&] { EXPECT_TRUE((*made)->send(peer, at::zeros({250'000})).has_value()); });
    at::Tensor got = at::zeros({250'000});
    EXPECT_TRUE((*made)->receive(peer, got).has_value());
    sender.join();
    const double spent = elapsed(begin);
    EXPECT_GE(spent, 0.12 - 0.02);  // the barrier releases the ranks one after another
    EXPECT_LT(spent, 0.2);          // not 0.24
  });
}

TEST(EmulatedLink, OfAMessageIsLatencyAndBytes) {
  EXPECT_EQ((EmulatedLink{.rate = 1e7, .latency_s = 0.02}.exchange_ns(2, 1e6)), 120'000'000);
}

}  // namespace
}  // namespace motley::run
