#include "motley/run/torch/shared_memory_group.h"

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

#include "motley/run/torch/clock.h"

namespace motley::run {
namespace {

using Kind = SharedMemoryGroup::Failure::Kind;

/// Members are threads here; each maps the file for itself, as processes do.
class SharedMemoryGroupTest : public testing::Test {
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

  std::string path_ = testing::TempDir() + "motley-shared-" + std::to_string(::getpid());
};

TEST_F(SharedMemoryGroupTest, SumsInTheOrderOfMembers) {
  // One element, a small odd size, one beyond the small path, several slots.
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
  open(2, 3).reset();  // as a killed process: without a word
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
