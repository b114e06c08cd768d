#include "motley/run/feed/sample_ring.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <cstring>
#include <thread>

namespace motley::run {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

void fill(SampleRing& ring, std::int64_t item) {
  std::memcpy(const_cast<std::byte*>(ring.sample(item)), &item, sizeof item);
  ring.publish(item);
}

std::int64_t number_in(const SampleRing& ring, std::int64_t item) {
  std::int64_t number = 0;
  std::memcpy(&number, ring.sample(item), sizeof number);
  return number;
}

TEST(SampleRing, ASlotIsFilledAgainWhenAllItsReadersAreDone) {
  const auto ring = SampleRing::create(2, 64).value();
  ASSERT_TRUE(ring->claim(0, 2));
  EXPECT_FALSE(ring->claim(2, 1)) << "is being filled";
  fill(*ring, 0);
  EXPECT_FALSE(ring->claim(2, 1)) << "nobody has read it";
  ring->release(0);
  EXPECT_FALSE(ring->claim(2, 1)) << "one of two has read it";
  ring->release(0);
  EXPECT_TRUE(ring->claim(2, 1));
  EXPECT_FALSE(ring->wait_for(2, 0)) << "the slot still has item 0";
  fill(*ring, 2);
  EXPECT_TRUE(ring->wait_for(2, 0));
  EXPECT_EQ(number_in(*ring, 2), 2);
  EXPECT_EQ(ring->progress(), 2u);
}

TEST(SampleRing, OthersSeeTheSameMemory) {
  const auto leader = SampleRing::create(3, 100).value();
  const auto other = SampleRing::open(leader->address());
  ASSERT_TRUE(other) << other.error().message;
  ASSERT_TRUE(leader->claim(1, 1));
  fill(*leader, 1);
  EXPECT_TRUE((*other)->wait_for(1, 0));
  EXPECT_EQ(number_in(**other, 1), 1);
  (*other)->release(1);
  (*other)->wake_leader();
  pollfd released = {leader->released_descriptor(), POLLIN, 0};
  EXPECT_EQ(::poll(&released, 1, 1000), 1);
  leader->take_releases();
  EXPECT_EQ(::poll(&released, 1, 0), 0);
  EXPECT_TRUE(leader->claim(4, 1));
}

TEST(SampleRing, ManySamplesThroughFewSlots) {
  constexpr std::int64_t kItems = 5000;
  const auto leader = SampleRing::create(7, 64).value();
  const auto other = SampleRing::open(leader->address()).value();
  std::thread filling([&] {
    for (std::int64_t item = 0; item < kItems; ++item) {
      while (!leader->claim(item, 1)) std::this_thread::yield();
      fill(*leader, item);
    }
  });
  std::int64_t wrong = 0;
  for (std::int64_t item = 0; item < kItems; ++item) {
    while (!other->wait_for(item, kSecond)) {
    }
    wrong += number_in(*other, item) != item;
    other->release(item);
  }
  filling.join();
  EXPECT_EQ(wrong, 0);
}

TEST(SampleRing, TheFirstReasonOfAFailureCounts) {
  const auto leader = SampleRing::create(1, 64).value();
  const auto other = SampleRing::open(leader->address()).value();
  EXPECT_FALSE(other->failure());
  leader->fail("first");
  leader->fail("second");
  EXPECT_EQ(other->failure(), "first");
}

TEST(SampleRing, NoLeaderNoRing) {
  EXPECT_EQ(SampleRing::open("/proc/1/fd/9999 /proc/1/fd/9998").error().code, "run.feed");
}

}  // namespace
}  // namespace motley::run
