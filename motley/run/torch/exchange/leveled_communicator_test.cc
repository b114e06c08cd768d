#include "motley/run/torch/exchange/leveled_communicator.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "motley/run/torch/exchange/host_communicator.h"
#include "motley/testing/thread_ranks.h"

namespace motley::run {
namespace {

/// By rank, the hosts of a group of all ranks.
class LeveledCommunicator : public RendezvousTest,
                            public ::testing::WithParamInterface<std::vector<std::string>> {};
INSTANTIATE_TEST_SUITE_P(Hosts, LeveledCommunicator,
                         ::testing::Values(std::vector<std::string>{"a", "a", "b", "b"},
                                           std::vector<std::string>{"a", "b", "a", "b"},
                                           std::vector<std::string>{"a", "b", "b"},
                                           std::vector<std::string>{"a", "b", "a", "a", "c"}));

TEST_P(LeveledCommunicator, GivesWhatOneLevelGives) {
  const std::vector<std::string>& hosts = GetParam();
  const auto size = static_cast<int>(hosts.size());
  const Counts sizes = {1'000, 0, 70'001, 3, 17};
  const Counts counts(sizes.begin(), sizes.begin() + size);
  on_ranks(size, [&](Rendezvous& rendezvous) {
    const int rank = rendezvous.rank();
    std::vector<int> everybody;
    for (int each = 0; each < size; ++each) everybody.push_back(each);
    Levels levels = find_levels(everybody, hosts, rank);
    ASSERT_FALSE(levels.hosts.empty());
    CommunicatorOptions options;
    options.groups = {{everybody, {}}};
    options.timeout = Seconds(10);
    for (const std::vector<int>& group : make_level_groups(everybody, levels, 1))
      options.groups.push_back({group, {}});
    auto inner = make_host_communicator(rendezvous, options);
    ASSERT_TRUE(inner.has_value()) << inner.error().message;
    const auto communicator = with_levels(std::move(*inner), {{GroupId(0), levels}});
    const ExchangeCall call(GroupId(0), ExchangeMethod::kHierarchical);

    std::int64_t elements = 0;
    for (const std::int64_t count : counts) elements += count;
    const auto own = static_cast<std::size_t>(rank);
    const at::Tensor whole = at::arange(elements, at::kInt);
    const auto parts = whole.split_with_sizes(counts);
    at::Tensor all = at::zeros_like(whole), part = at::zeros_like(parts[own]);
    ASSERT_TRUE(communicator->all_gather(call, counts, parts[own].clone(), all).has_value());
    EXPECT_TRUE(at::equal(all, whole));
    ASSERT_TRUE(communicator->reduce_scatter(call, counts, all, part).has_value());
    EXPECT_TRUE(at::equal(part, parts[own].mul(size)));
    at::Tensor sum = whole.mul(rank);
    ASSERT_TRUE(communicator->all_reduce(call, sum).has_value());
    EXPECT_TRUE(at::equal(sum, whole.mul(size * (size - 1) / 2)));
    at::Tensor one = at::zeros({}, at::kFloat).add(rank);  // fewer elements than members
    ASSERT_TRUE(communicator->all_reduce(call, one).has_value());
    EXPECT_EQ(one.item<float>(), static_cast<float>(size * (size - 1)) / 2);
    // Member r sends member c 10 r + c elements of value 100 r + c, but none if r is c + 1.
    const auto given = [](std::size_t r, std::size_t c) {
      return r == c + 1 ? std::int64_t{0} : static_cast<std::int64_t>(10 * r + c);
    };
    const auto value = [](std::size_t r, std::size_t c) {
      return static_cast<std::int64_t>(100 * r + c);
    };
    Splits splits;
    std::vector<at::Tensor> sent, wanted;
    for (std::size_t other = 0; other < hosts.size(); ++other) {
      splits.sends.push_back(given(own, other));
      splits.receives.push_back(given(other, own));
      sent.push_back(at::full({splits.sends.back()}, value(own, other), at::kLong));
      wanted.push_back(at::full({splits.receives.back()}, value(other, own), at::kLong));
    }
    at::Tensor got = at::zeros_like(at::cat(wanted));
    ASSERT_TRUE(communicator->all_to_all(call, splits, at::cat(sent), got).has_value());
    EXPECT_TRUE(at::equal(got, at::cat(wanted)));
    // Another method in the same group.
    ASSERT_TRUE(communicator->all_gather(GroupId(0), counts, part, all).has_value());
    EXPECT_TRUE(at::equal(all, whole.mul(size)));
  });
}

TEST(Levels, AreNoneWhereHostsHaveOneMemberEachOrAllOfThem) {
  EXPECT_TRUE(find_levels({0, 1, 2}, {"a", "b", "c"}, 0).hosts.empty());
  EXPECT_TRUE(find_levels({0, 1, 2}, {"a", "a", "a"}, 0).hosts.empty());
  EXPECT_TRUE(find_levels({0, 2}, {"a", "a", "b"}, 0).hosts.empty());
}

TEST(Levels, OfUnequalHostsTheFirstMembersStandForThem) {
  Levels levels = find_levels({4, 1, 3}, {"a", "b", "a", "b", "a"}, 3);
  EXPECT_EQ(levels.hosts, (std::vector<std::vector<std::size_t>>{{0}, {1, 2}}));
  EXPECT_FALSE(levels.is_even);
  EXPECT_EQ(make_level_groups({4, 1, 3}, levels, 7),
            (std::vector<std::vector<int>>{{4}, {1, 3}, {4, 1}}));
  EXPECT_EQ(levels.inside, GroupId(8));
  EXPECT_TRUE(levels.across.is_none());
}

}  // namespace
}  // namespace motley::run
