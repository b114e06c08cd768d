#include "motley/run/torch/lanes/framework_memory.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <gtest/gtest.h>

#include "motley/cluster/framework.h"

namespace motley::run {
namespace {

constexpr Bytes mebibytes(std::int64_t count) { return Bytes(count << 20); }

TEST(FrameworkMemory, IsContextAndShareOfALargeStep) {
  // 24 GiB, 19.5 free, 4 reserved: the context has 512 MiB, and 32 MiB of workspaces. At the peak
  // 3232 MiB were allocated, 3200 by tensors, and 3552 reserved: 320 unused, a tenth of 3200.
  const auto times =
      framework_times({mebibytes(24 << 10), mebibytes((39 << 10) / 2), mebibytes(4 << 10),
                       mebibytes(32), mebibytes(3552), mebibytes(3232)});
  ASSERT_EQ(times.size(), 2U);
  EXPECT_EQ(times[0].key, cluster::kContextKey);
  EXPECT_EQ(times[0].scratch, mebibytes(512 + 32));
  EXPECT_EQ(times[0].median, Seconds(0.0));
  EXPECT_EQ(times[1].key, cluster::kReserveKey);
  EXPECT_NEAR(static_cast<double>(times[1].scratch.value), 0.1 * (1 << 30), 1);
}

TEST(FrameworkMemory, OfASmallStepWhatBlocksWasteIsContext) {
  // 10 MiB of tensors in 22 MiB of blocks, 300 MiB of context, no workspaces.
  const auto times = framework_times(
      {mebibytes(1000), mebibytes(678), mebibytes(22), Bytes(0), mebibytes(22), mebibytes(10)});
  ASSERT_EQ(times.size(), 1U);
  EXPECT_EQ(times[0].scratch, mebibytes(300 + 12));
}

class FakeDeviceAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(std::size_t) override { return {}; }
  void copy_data(void*, const void*, std::size_t) const override {}
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override { ++emptied; }
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    EXPECT_EQ(device, 1);
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.reserved_bytes[0].current = 30;
    stats.reserved_bytes[0].peak = 50;
    stats.allocated_bytes[0].current = 10;
    stats.allocated_bytes[0].peak = 40;
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex device) override { reset = device; }
  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex) override {
    return {700, 1000};
  }
  int emptied = 0, reset = -1;
};

TEST(FrameworkMemory, IsReadFromTheDevicesAllocator) {
  static FakeDeviceAllocator allocator;
  c10::SetAllocator(c10::DeviceType::PrivateUse1, &allocator);
  const c10::Device device(c10::DeviceType::PrivateUse1, 1);
  prepare_device_use(device);
  EXPECT_EQ(allocator.emptied, 1);
  EXPECT_EQ(allocator.reset, 1);
  const DeviceUse use = read_device_use(device);
  EXPECT_EQ(use.total, Bytes(1000));
  EXPECT_EQ(use.free, Bytes(700));
  EXPECT_EQ(use.reserved, Bytes(30));
  EXPECT_EQ(use.allocated, Bytes(10));
  EXPECT_EQ(use.reserved_peak, Bytes(50));
  EXPECT_EQ(use.allocated_peak, Bytes(40));
}

}  // namespace
}  // namespace motley::run
