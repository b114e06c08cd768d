#include "motley/run/torch/exchange/shared_memory_group.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "motley/run/torch/exchange/clock.h"

namespace motley::run {
namespace {

using Kind = SharedMemoryGroup::Failure::Kind;

/// Members are threads; each maps the file itself, as processes do.
class SharedMemoryGroupTest : public ::testing::Test {
 protected:
  void TearDown() override { ::unlink(path_.c_str()); }

  std::unique_ptr<SharedMemoryGroup> open(int member, int members, Seconds timeout = Seconds(10)) {
    auto group = SharedMemoryGroup::open({path_, member, members, timeout});
    EXPECT_TRUE(group.has_value()) << group.error().message;
    return std::move(*group);
  }

  void on_members(int members, const std::function<void(int, SharedMemoryGroup&)>& body) {
    std::vector<std::unique_ptr<SharedMemoryGroup>> groups;
    for (int m = 0; m < members; ++m) groups.push_back(open(m, members));
    ::unlink(path_.c_str());
    std::vector<std::thread> threads;
    for (int m = 0; m < members; ++m)
      threads.emplace_back([&, m] { body(m, *groups[static_cast<std::size_t>(m)]); });
    for (std::thread& thread : threads) thread.join();
  }

  std::string path_ = ::testing::TempDir() + "motley-shared-" + std::to_string(::getpid());
};

TEST_F(SharedMemoryGroupTest, SumsInTheOrderOfMembers) {
  // One element, a small odd size, one above the small path, several slots.
  const std::vector<std::int64_t> sizes = {1, 4095, 4097, 1'300'001};
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kLong})
    for (const std::int64_t size : sizes) {
      std::vector<at::Tensor> tensors;
      for (int m = 0; m < 3; ++m) tensors.push_back(at::randn({size}).mul_(1000).to(type));
      const at::Tensor sum = tensors[0].clone().add_(tensors[1]).add_(tensors[2]);
      on_members(3, [&](int m, SharedMemoryGroup& group) {
        at::Tensor tensor = tensors[static_cast<std::size_t>(m)].clone();
        ASSERT_TRUE(group.all_reduce(tensor).has_value());
        EXPECT_TRUE(at::equal(tensor, sum)) << type << " " << size << " member " << m;
      });
    }
}

TEST_F(SharedMemoryGroupTest, HalvesAreSummedInFloat) {
  std::vector<at::Tensor> tensors;
  for (int m = 0; m < 4; ++m) tensors.push_back(at::randn({10'000}).to(at::kBFloat16));
  at::Tensor sum = at::zeros({10'000});
  for (const at::Tensor& tensor : tensors) sum.add_(tensor.to(at::kFloat));
  on_members(4, [&](int m, SharedMemoryGroup& group) {
    at::Tensor tensor = tensors[static_cast<std::size_t>(m)].clone();
    ASSERT_TRUE(group.all_reduce(tensor).has_value());
    EXPECT_TRUE(at::equal(tensor, sum.to(at::kBFloat16)));
  });
}

TEST_F(SharedMemoryGroupTest, ManyOperationsOfChangingSize) {
  on_members(3, [](int m, SharedMemoryGroup& group) {
    for (std::int64_t i = 0; i < 2000; ++i) {
      at::Tensor tensor = at::full({1 + i * 7 % 6000}, static_cast<double>(i + m));
      ASSERT_TRUE(group.all_reduce(tensor).has_value());
      ASSERT_TRUE(at::equal(tensor, at::full(tensor.sizes(), static_cast<double>(3 * i + 3))));
    }
  });
}

/// Returns elements that differ by member, in the range of all types.
at::Tensor numbers(std::int64_t count, int member, at::ScalarType type) {
  return at::arange(count).mul_(7).add_(member).remainder_(31).to(type);
}

TEST_F(SharedMemoryGroupTest, GathersUnevenParts) {
  // Empty parts, one much larger than the others, several slots (2 MiB each).
  const std::vector<Counts> cases = {{0, 3, 0}, {5, 0, 70'001}, {1'500'001, 20, 400'000}};
  for (const at::ScalarType type : {at::kBool, at::kBFloat16, at::kFloat, at::kLong})
    for (const Counts& counts : cases) {
      std::vector<at::Tensor> parts;
      for (int m = 0; m < 3; ++m)
        parts.push_back(numbers(counts[static_cast<std::size_t>(m)], m, type));
      const at::Tensor wanted = at::cat(parts);
      on_members(3, [&](int m, SharedMemoryGroup& group) {
        at::Tensor all = at::empty_like(wanted);
        ASSERT_TRUE(group.all_gather(counts, parts[static_cast<std::size_t>(m)], all).has_value());
        EXPECT_TRUE(at::equal(all, wanted)) << type << " member " << m;
      });
    }
}

TEST_F(SharedMemoryGroupTest, ScattersSums) {
  const std::vector<Counts> cases = {{0, 3, 0}, {5, 0, 70'001}, {1'100'001, 20, 300'000}};
  for (const at::ScalarType type :
       {at::kBFloat16, at::kHalf, at::kFloat, at::kDouble, at::kInt, at::kLong})
    for (const Counts& counts : cases) {
      const std::int64_t total = counts[0] + counts[1] + counts[2];
      std::vector<at::Tensor> addends;
      for (int m = 0; m < 3; ++m) addends.push_back(at::randn({total}).mul_(100).to(type));
      const bool is_half = type == at::kBFloat16 || type == at::kHalf;
      at::Tensor sum = is_half ? addends[0].to(at::kFloat) : addends[0].clone();
      for (int m = 1; m < 3; ++m) sum.add_(addends[static_cast<std::size_t>(m)]);
      const auto wanted = sum.to(type).split_with_sizes(counts);
      on_members(3, [&](int m, SharedMemoryGroup& group) {
        const auto own = static_cast<std::size_t>(m);
        at::Tensor part = at::empty_like(wanted[own]);
        ASSERT_TRUE(group.reduce_scatter(counts, addends[own], part).has_value());
        EXPECT_TRUE(at::equal(part, wanted[own])) << type << " member " << m;
      });
    }
}

void expect_all_to_all(const std::vector<Counts>& sends, at::ScalarType type, int m,
                       SharedMemoryGroup& group) {
  const auto own = static_cast<std::size_t>(m);
  std::vector<at::Tensor> received;
  Splits splits{sends[own], {}};
  at::Tensor in;
  for (std::size_t i = 0; i < sends.size(); ++i) {
    std::int64_t total = 0;
    for (const std::int64_t count : sends[i]) total += count;
    const at::Tensor all = numbers(total, static_cast<int>(i), type);
    received.push_back(all.split_with_sizes(sends[i])[own]);
    splits.receives.push_back(sends[i][own]);
    if (i == own) in = all;
  }
  const at::Tensor wanted = at::cat(received);
  at::Tensor out = at::empty_like(wanted);
  ASSERT_TRUE(group.all_to_all(splits, in, out).has_value());
  EXPECT_TRUE(at::equal(out, wanted)) << type << " member " << m;
}

TEST_F(SharedMemoryGroupTest, ExchangesUnevenParts) {
  const std::vector<Counts> small = {{0, 2, 1}, {0, 0, 0}, {3, 4, 5}};
  const std::vector<Counts> nothing = {{0, 0, 0}, {0, 0, 0}, {0, 0, 0}};
  const std::vector<Counts> large = {{7, 900'001, 5}, {0, 0, 30}, {600'000, 1, 600'000}};
  for (const at::ScalarType type : {at::kBool, at::kBFloat16, at::kFloat, at::kLong})
    for (const auto& sends : {small, nothing, large})
      on_members(
          3, [&](int m, SharedMemoryGroup& group) { expect_all_to_all(sends, type, m, group); });
}

TEST_F(SharedMemoryGroupTest, OperationsFollowEachOtherInAnyOrder) {
  on_members(3, [](int m, SharedMemoryGroup& group) {
    for (std::int64_t i = 0; i < 300; ++i) {
      const Counts counts = {i % 5 * 100, 7, i * 13 % 3000};
      const std::int64_t total = counts[0] + counts[1] + counts[2];
      const std::int64_t own = counts[static_cast<std::size_t>(m)];
      const double value = static_cast<double>(i + m);
      at::Tensor all = at::zeros({total}), part = at::full({own}, value);
      ASSERT_TRUE(group.all_gather(counts, part, all).has_value());
      ASSERT_EQ(all[counts[0]].item<double>(), static_cast<double>(i + 1));
      ASSERT_TRUE(group.reduce_scatter(counts, all, part).has_value());
      ASSERT_TRUE(at::equal(part, at::full({own}, 3 * value)));
      expect_all_to_all({counts, {1, 2, 3}, {0, 0, 9}}, at::kFloat, m, group);
      at::Tensor sum = at::full({i % 7 + 1}, value);
      ASSERT_TRUE(group.all_reduce(sum).has_value());
      ASSERT_EQ(sum[0].item<double>(), static_cast<double>(3 * i + 3));
    }
  });
}

TEST_F(SharedMemoryGroupTest, EveryOperationNoticesAMemberThatEnded) {
  for (const int operation : {0, 1, 2}) {
    const auto group = open(0, 2);
    open(1, 2).reset();
    ::unlink(path_.c_str());
    at::Tensor one = at::zeros({1}), two = at::zeros({2});
    const auto result = operation == 0   ? group->all_gather({1, 1}, one, two)
                        : operation == 1 ? group->reduce_scatter({1, 1}, two, one)
                                         : group->all_to_all({{0, 1}, {0, 2}}, one, two);
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().kind, Kind::kLost);
    EXPECT_EQ(result.error().member, 1);
  }
}

TEST_F(SharedMemoryGroupTest, KnowsWhenTheLastCame) {
  std::int64_t late = 0;
  on_members(2, [&](int m, SharedMemoryGroup& group) {
    at::Tensor tensor = at::zeros({1});
    if (m == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      late = monotonic_ns();
    }
    ASSERT_TRUE(group.all_reduce(tensor).has_value());
    EXPECT_GE(group.last_arrival_ns(), late);
    EXPECT_LE(group.last_arrival_ns(), monotonic_ns());
  });
}

TEST_F(SharedMemoryGroupTest, NoticesAMemberThatEnded) {
  const auto group = open(0, 3);
  const auto other = open(1, 3);
  open(2, 3).reset();  // silently, as a killed process
  std::thread waits([&] {
    at::Tensor tensor = at::zeros({1});
    (void)other->all_reduce(tensor);
  });
  const std::int64_t begin = monotonic_ns();
  at::Tensor tensor = at::zeros({1});
  const auto result = group->all_reduce(tensor);
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().kind, Kind::kLost);
  EXPECT_EQ(result.error().member, 2);
  EXPECT_LT(monotonic_ns() - begin, 1'000'000'000);
  waits.join();
}

TEST_F(SharedMemoryGroupTest, SilentMemberIsLate) {
  const auto group = open(0, 2, Seconds(0.2));
  const auto silent = open(1, 2);
  at::Tensor tensor = at::zeros({1});
  const auto result = group->all_reduce(tensor);
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().kind, Kind::kLate);
  EXPECT_EQ(result.error().member, 1);
}

TEST_F(SharedMemoryGroupTest, FolderThatIsNotThere) {
  EXPECT_EQ(SharedMemoryGroup::open({"/nowhere/file", 0, 2, Seconds(1)}).error().message,
            "/nowhere/file: No such file or directory");
}

}  // namespace
}  // namespace motley::run
