#include "motley/run/torch/exchange/host_communicator.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <thread>
#include <vector>

#include "motley/testing/thread_ranks.h"

namespace motley::run {
namespace {

class Transport : public RendezvousTest, public ::testing::WithParamInterface<bool> {
 protected:
  /// Expects a timeout of the first rank's exchange if the second rank does not take part.
  void expect_timeout(const std::function<Result<void>(Communicator&)>& exchange) {
    std::filesystem::remove(dir_ + "/rendezvous");
    CommunicatorOptions options{{{{0, 1}, {}}}, Seconds(0.5), GetParam()};
    on_ranks(2, [&](Rendezvous& rendezvous) {
      auto communicator = make_host_communicator(rendezvous, options);
      ASSERT_TRUE(communicator.has_value());
      if (rendezvous.rank() == 1) {
        (void)rendezvous.get("over");
        return;
      }
      const auto late = exchange(**communicator);
      (void)rendezvous.set("over", "");
      ASSERT_FALSE(late.has_value());
      EXPECT_EQ(late.error().code, "run.timeout") << late.error().message;
    });
  }
};
INSTANTIATE_TEST_SUITE_P(Host, Transport, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "SharedMemory" : "Gloo"; });

CommunicatorOptions two_groups(bool shared_memory) {
  CommunicatorOptions options;
  options.shared_memory = shared_memory;
  options.groups = {{{0, 1, 2}, {}}, {{0, 2}, {}}};
  options.timeout = Seconds(10);
  return options;
}

TEST_P(Transport, SumsOverGroups) {
  on_ranks(3, [&](Rendezvous& rendezvous) {
    auto made = make_host_communicator(rendezvous, two_groups(GetParam()));
    ASSERT_TRUE(made.has_value()) << made.error().message;
    Communicator& communicator = **made;
    at::Tensor all = at::full({5}, rendezvous.rank() + 1.0);
    ASSERT_TRUE(communicator.all_reduce(GroupId(0), all).has_value());
    EXPECT_EQ(all[4].item<double>(), 6.0);  // 1 + 2 + 3
    if (rendezvous.rank() == 1) return;
    at::Tensor two = at::full({3}, rendezvous.rank() + 1.0, at::kDouble);
    ASSERT_TRUE(communicator.all_reduce(GroupId(1), two).has_value());
    EXPECT_EQ(two[0].item<double>(), 4.0);  // 1 + 3
    at::Tensor none = at::zeros({0});
    EXPECT_TRUE(communicator.all_reduce(GroupId(0), none).has_value());
  });
}

TEST_P(Transport, UnevenExchangesOverGroups) {
  on_ranks(3, [&](Rendezvous& rendezvous) {
    auto made = make_host_communicator(rendezvous, two_groups(GetParam()));
    ASSERT_TRUE(made.has_value()) << made.error().message;
    Communicator& communicator = **made;
    const int rank = rendezvous.rank();
    for (const at::ScalarType type : {at::kBFloat16, at::kFloat, at::kLong, at::kInt}) {
      // Rank 1 has nothing; rank r has 2 (r + 1) elements of value r + 1.
      const Counts counts = {2, 0, 6};
      at::Tensor part = at::full({counts[static_cast<std::size_t>(rank)]}, rank + 1, type);
      at::Tensor all = at::zeros({8}, type);
      ASSERT_TRUE(communicator.all_gather(GroupId(0), counts, part, all).has_value());
      const at::Tensor wanted = at::tensor({1, 1, 3, 3, 3, 3, 3, 3}).to(type);
      EXPECT_TRUE(at::equal(all, wanted)) << all;
      ASSERT_TRUE(communicator.reduce_scatter(GroupId(0), counts, all, part).has_value());
      EXPECT_TRUE(
          at::equal(part, wanted.split_with_sizes(counts)[static_cast<std::size_t>(rank)].mul(3)));
      at::Tensor none = at::zeros({0}, type);
      ASSERT_TRUE(communicator.all_gather(GroupId(0), {0, 0, 0}, none, none).has_value());
      ASSERT_TRUE(
          communicator.all_to_all(GroupId(0), {{0, 0, 0}, {0, 0, 0}}, none, none).has_value());
      if (rank == 1) continue;
      // Rank 0 keeps 1 and sends 3; rank 2 sends both that it has.
      const Splits splits = rank == 0 ? Splits{{1, 3}, {1, 2}} : Splits{{2, 0}, {3, 0}};
      const at::Tensor in =
          rank == 0 ? at::tensor({1, 2, 3, 4}).to(type) : at::tensor({5, 6}).to(type);
      at::Tensor out = at::zeros({3}, type);
      ASSERT_TRUE(communicator.all_to_all(GroupId(1), splits, in, out).has_value());
      const std::vector<int> got = rank == 0 ? std::vector{1, 5, 6} : std::vector{2, 3, 4};
      EXPECT_TRUE(at::equal(out, at::tensor(got).to(type))) << out;
    }
    const at::Tensor flags = at::tensor({rank == 0 ? 1 : 0, 1}).to(at::kBool);
    at::Tensor gathered = at::zeros({6}, at::kBool);
    ASSERT_TRUE(communicator.all_gather(GroupId(0), {2, 2, 2}, flags, gathered).has_value());
    EXPECT_TRUE(at::equal(gathered, at::tensor({1, 1, 0, 1, 0, 1}).to(at::kBool)));
  });
}

TEST_P(Transport, LargeUnevenExchanges) {
  on_ranks(3, [&](Rendezvous& rendezvous) {
    auto made = make_host_communicator(rendezvous, two_groups(GetParam()));
    ASSERT_TRUE(made.has_value());
    const auto own = static_cast<std::size_t>(rendezvous.rank());
    const Counts counts = {1'000'000, 3, 200'000};
    const at::Tensor whole = at::arange(1'200'003, at::kFloat);
    const auto parts = whole.split_with_sizes(counts);
    at::Tensor all = at::zeros_like(whole), part = at::zeros_like(parts[own]);
    ASSERT_TRUE((*made)->all_gather(GroupId(0), counts, parts[own].clone(), all).has_value());
    EXPECT_TRUE(at::equal(all, whole));
    ASSERT_TRUE((*made)->reduce_scatter(GroupId(0), counts, all, part).has_value());
    EXPECT_TRUE(at::equal(part, parts[own].mul(3)));
    // Back: everybody sends its part to rank 2.
    Splits splits{{0, 0, counts[own]}, {0, 0, 0}};
    if (own == 2) splits.receives = counts;
    at::Tensor out = at::zeros({own == 2 ? 1'200'003 : 0});
    ASSERT_TRUE((*made)->all_to_all(GroupId(0), splits, parts[own].clone(), out).has_value());
    EXPECT_TRUE(own != 2 || at::equal(out, whole));
  });
}

TEST_P(Transport, EveryMethodExchangesTheSame) {
  // Rank 1 has nothing; parts of rank 0 take several pieces.
  const Counts counts = {300'000, 0, 70'001};
  for (const ExchangeMethod method :
       {ExchangeMethod::kPadded, ExchangeMethod::kGrouped, ExchangeMethod::kHierarchical}) {
    std::filesystem::remove(dir_ + "/rendezvous");
    on_ranks(3, [&](Rendezvous& rendezvous) {
      auto made = make_host_communicator(rendezvous, two_groups(GetParam()));
      ASSERT_TRUE(made.has_value());
      const auto own = static_cast<std::size_t>(rendezvous.rank());
      const ExchangeCall call(GroupId(0), method);
      for (const at::ScalarType type : {at::kFloat, at::kInt, at::kBFloat16}) {
        const at::Tensor whole = at::arange(370'001, at::kInt).remainder(64).to(type);
        const auto parts = whole.split_with_sizes(counts);
        at::Tensor all = at::zeros_like(whole), part = at::zeros_like(parts[own]);
        ASSERT_TRUE((*made)->all_gather(call, counts, parts[own].clone(), all).has_value());
        EXPECT_TRUE(at::equal(all, whole));
        ASSERT_TRUE((*made)->reduce_scatter(call, counts, all, part).has_value());
        EXPECT_TRUE(at::equal(part, parts[own].mul(3)));
        // Everybody sends its part to rank 2.
        Splits splits{{0, 0, counts[own]}, {0, 0, 0}, 300'000};
        if (own == 2) splits.receives = counts;
        at::Tensor out = at::zeros({own == 2 ? 370'001 : 0}, type);
        ASSERT_TRUE((*made)->all_to_all(call, splits, parts[own].clone(), out).has_value());
        EXPECT_TRUE(own != 2 || at::equal(out, whole));
      }
      const at::Tensor flags = at::tensor({own == 0 ? 1 : 0, 1}).to(at::kBool);
      at::Tensor gathered = at::zeros({6}, at::kBool);
      ASSERT_TRUE((*made)->all_gather(call, {2, 2, 2}, flags, gathered).has_value());
      EXPECT_TRUE(at::equal(gathered, at::tensor({1, 1, 0, 1, 0, 1}).to(at::kBool)));
    });
  }
}

TEST_P(Transport, AnEmulatedLinkHoldsWhatAMethodMoves) {
  // Of 100 kB, 4 bytes and nothing, each sent to 2 others at 1 MB/s: 0.2 s; forwarded: 0.1 s.
  CommunicatorOptions options{{{{0, 1, 2}, {.rate = 1e6}}}, Seconds(10), GetParam()};
  on_ranks(3, [&](Rendezvous& rendezvous) {
    auto communicator = make_host_communicator(rendezvous, options);
    ASSERT_TRUE(communicator.has_value());
    const Counts counts = {25'000, 1, 0};
    at::Tensor part = at::zeros({counts[static_cast<std::size_t>(rendezvous.rank())]});
    at::Tensor all = at::zeros({25'001});
    const auto seconds = [&](ExchangeMethod method) {
      EXPECT_TRUE(
          rendezvous.barrier(std::string(exchange_method_name(method)), Seconds(10)).has_value());
      const auto begin = std::chrono::steady_clock::now();
      const ExchangeCall call(GroupId(0), method);
      EXPECT_TRUE((*communicator)->all_gather(call, counts, part, all).has_value());
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    const double native = seconds(ExchangeMethod::kNative);
    const double grouped = seconds(ExchangeMethod::kGrouped);
    EXPECT_GE(native, 0.19);
    EXPECT_GE(grouped, 0.09);
    EXPECT_LT(grouped, native);
  });
}

TEST_P(Transport, AnEmulatedLinkHoldsUnevenExchanges) {
  // The largest part, 100 kB, goes to one other at 1 MB/s after 20 ms: 0.12 s, on both.
  CommunicatorOptions options{
      {{{0, 1}, {.rate = 1e6, .latency_s = 0.02}}}, Seconds(10), GetParam()};
  on_ranks(2, [&](Rendezvous& rendezvous) {
    auto communicator = make_host_communicator(rendezvous, options);
    ASSERT_TRUE(communicator.has_value());
    const bool is_first = rendezvous.rank() == 0;
    at::Tensor part = at::zeros({is_first ? 25'000 : 10}), all = at::zeros({25'010});
    ASSERT_TRUE(rendezvous.barrier("start", Seconds(10)).has_value());
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_TRUE((*communicator)->all_gather(GroupId(0), {25'000, 10}, part, all).has_value());
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
    EXPECT_GE(spent.count(), 0.12 - 0.02);
    // Rank 0 keeps 15'000, sends 10'000 elements and receives none: 0.06 s on both.
    const Splits splits =
        is_first ? Splits{{15'000, 10'000}, {15'000, 0}} : Splits{{0, 10}, {10'000, 10}};
    at::Tensor out = at::zeros({is_first ? 15'000 : 10'010});
    const auto again = std::chrono::steady_clock::now();
    ASSERT_TRUE((*communicator)->all_to_all(GroupId(0), splits, part, out).has_value());
    const std::chrono::duration<double> second = std::chrono::steady_clock::now() - again;
    EXPECT_GE(second.count(), 0.06 - 0.02);
  });
}

TEST_P(Transport, PeersOfAClosedRankFailInUnevenExchanges) {
  for (const int operation : {0, 1, 2, 3, 4, 5, 6, 7, 8}) {
    const ExchangeCall call(GroupId(0), kExchangeMethods[static_cast<std::size_t>(operation / 3)]);
    std::filesystem::remove(dir_ + "/rendezvous");
    on_ranks(2, [&](Rendezvous& rendezvous) {
      CommunicatorOptions options{{{{0, 1}, {}}}, Seconds(10), GetParam()};
      auto made = make_host_communicator(rendezvous, options);
      ASSERT_TRUE(made.has_value()) << made.error().message;
      ASSERT_TRUE(rendezvous.barrier("made", Seconds(10)).has_value());
      if (rendezvous.rank() == 1) return (*made)->close();
      at::Tensor part = at::zeros({50'000}), all = at::zeros({100'000});
      const Counts counts = {50'000, 50'000};
      const auto failed = operation % 3 == 0 ? (*made)->all_gather(call, counts, part, all)
                          : operation % 3 == 1
                              ? (*made)->reduce_scatter(call, counts, all, part)
                              : (*made)->all_to_all(call, {counts, counts, 50'000}, all, all);
      ASSERT_FALSE(failed.has_value());
      EXPECT_EQ(failed.error().code, "run.peer-lost") << failed.error().message;
    });
  }
}

TEST_P(Transport, BroadcastsAnyType) {
  on_ranks(2, [&](Rendezvous& rendezvous) {
    auto communicator = make_host_communicator(rendezvous, {{}, Seconds(10), true});
    ASSERT_TRUE(communicator.has_value());
    for (const at::ScalarType type : {at::kBool, at::kBFloat16, at::kDouble, at::kLong}) {
      at::Tensor scalar = at::full({}, 1 - rendezvous.rank(), type);
      ASSERT_TRUE((*communicator)->broadcast(scalar).has_value());
      EXPECT_EQ(scalar.item<double>(), 1.0);
    }
  });
}

TEST_P(Transport, AnEmulatedLinkHoldsFromTheLastArrival) {
  // 1 MB among 2 ranks at 10 MB/s, 20 ms latency: 0.02 + 2 * 1/2 * 0.1 = 0.12 s.
  CommunicatorOptions options{
      {{{0, 1}, {.rate = 1e7, .latency_s = 0.02}}}, Seconds(10), GetParam()};
  on_ranks(2, [&](Rendezvous& rendezvous) {
    auto communicator = make_host_communicator(rendezvous, options);
    ASSERT_TRUE(communicator.has_value());
    at::Tensor tensor = at::zeros({250'000});
    ASSERT_TRUE(rendezvous.barrier("start", Seconds(10)).has_value());
    const auto begin = std::chrono::steady_clock::now();
    if (rendezvous.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    ASSERT_TRUE((*communicator)->all_reduce(GroupId(0), tensor).has_value());
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
    EXPECT_GE(spent.count(), 0.32 - 0.02);  // both wait for rank 1, then for the link
  });
}

TEST(EmulatedLink, ModelIsThatOfARing) {
  const EmulatedLink link{.rate = 100.0, .latency_s = 0.5};
  // 0.5 + 2 * 3/4 * 400 / 100 = 6.5 s.
  EXPECT_EQ(link.all_reduce_ns(4, 400), 6'500'000'000);
  EXPECT_EQ(link.all_reduce_ns(1, 400), 0);
  EXPECT_EQ((EmulatedLink{.rate = 0, .latency_s = 0.25}.all_reduce_ns(2, 1 << 30)), 250'000'000);
}

TEST(EmulatedLink, TheSlowestMemberDecides) {
  std::vector<WorkerDevice> devices(3);
  devices[0].rate = 10.0;
  devices[1].rate = 5.0;
  devices[1].latency = 0.1;
  EXPECT_EQ(group_link(devices, {0, 1}), (EmulatedLink{5.0, 0.1}));
  EXPECT_EQ(group_link(devices, {0, 2}), (EmulatedLink{10.0, 0.0}));
  EXPECT_TRUE(group_link(devices, {2}).is_real());
}

TEST_P(Transport, PeersOfAClosedRankFailAtOnce) {
  on_ranks(3, [&](Rendezvous& rendezvous) {
    auto made = make_host_communicator(rendezvous, two_groups(GetParam()));
    ASSERT_TRUE(made.has_value());
    Communicator& communicator = **made;
    const auto begin = std::chrono::steady_clock::now();
    if (rendezvous.rank() == 1) {
      communicator.close();
      communicator.close();
    } else {
      at::Tensor tensor = at::zeros({100'000});
      const auto failed = communicator.all_reduce(GroupId(0), tensor);
      ASSERT_FALSE(failed.has_value());
      EXPECT_EQ(failed.error().code, "run.peer-lost");
      const std::string start =
          "rank " + std::to_string(rendezvous.rank()) +
          ": all_reduce of 400000 bytes among ranks 0 1 2 failed, a peer is gone: ";
      EXPECT_TRUE(failed.error().message.starts_with(start)) << failed.error().message;
    }
    at::Tensor tensor = at::zeros({1});
    EXPECT_EQ(communicator.all_reduce(GroupId(0), tensor).error().message,
              "rank " + std::to_string(rendezvous.rank()) + ": all_reduce after an earlier error");
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  });
}

TEST_P(Transport, SilentPeerIsATimeout) {
  expect_timeout([](Communicator& communicator) {
    at::Tensor tensor = at::zeros({1});
    return communicator.all_reduce(GroupId(0), tensor);
  });
}

TEST_P(Transport, SilentPeerIsATimeoutOfEveryMethod) {
  for (const ExchangeMethod method : kExchangeMethods)
    expect_timeout([&](Communicator& communicator) {
      at::Tensor part = at::zeros({300'000}), all = at::zeros({600'000});
      const ExchangeCall call(GroupId(0), method);
      return communicator.all_gather(call, {300'000, 300'000}, part, all);
    });
}

TEST_F(RendezvousTest, DisagreementNamesTheRank) {
  on_ranks(3, [&](Rendezvous& rendezvous) {
    EXPECT_TRUE(rendezvous.agree("version", "2.15").has_value());
    const auto agreed = rendezvous.agree("sequence", rendezvous.rank() == 2 ? "b" : "a");
    ASSERT_FALSE(agreed.has_value());
    EXPECT_EQ(agreed.error().message, "sequence: rank 2 has b, rank 0 has a");
  });
}

TEST_F(RendezvousTest, AllNameTheRankThatDidNotCome) {
  on_ranks(4, [&](Rendezvous& rendezvous) {
    if (rendezvous.rank() == 2) return;
    const auto met = rendezvous.barrier("start", Seconds(0.5));
    ASSERT_FALSE(met.has_value());
    EXPECT_EQ(met.error().code, "run.timeout");
    EXPECT_EQ(met.error().message, "rank 0 waited 0.5 s for rank 2: start");
  });
}

TEST_F(RendezvousTest, AMissingKeyIsATimeout) {
  const auto rendezvous = open(0, 2);
  const auto missing = rendezvous->get("nothing", Seconds(0.2));
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().message, "rank 0: 'nothing' did not come within 0.2 s");
}

RankPlace local_place(int rank, int port) {
  RankPlace place;
  place.rank = rank;
  place.size = 2;
  place.master_address = "127.0.0.1";
  place.master_port = port;
  place.attempt = "job/0";
  place.source = "test";
  return place;
}

TEST(TcpRendezvous, TakenPortIsOneClearMessage) {
  RendezvousOptions options;
  options.size = 2;
  options.timeout = Seconds(60);  // a client waits for a busy machine
  std::unique_ptr<Rendezvous> first;
  int port = 20'000 + ::getpid() % 20'000;
  for (; !first && port < 60'000; ++port) {  // a free port
    options.place = local_place(0, port);
    if (auto opened = Rendezvous::open(options)) first = std::move(*opened);
  }
  ASSERT_TRUE(first);
  const auto second = Rendezvous::open(options);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().message,
            "port " + std::to_string(port - 1) +
                " on 127.0.0.1 is in use by another program; set MASTER_PORT to a free port on all "
                "ranks");
  // A client finds the first one, and this host's own address.
  options.rank = 1;
  options.place = local_place(1, port - 1);
  const auto client = Rendezvous::open(options);
  ASSERT_TRUE(client.has_value()) << client.error().message;
  ASSERT_TRUE(first->set("key", "value").has_value());
  EXPECT_EQ(*(*client)->get("key"), "value");
  EXPECT_EQ(*(*client)->own_address(), "127.0.0.1");
}

}  // namespace
}  // namespace motley::run
