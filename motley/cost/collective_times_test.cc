#include "motley/cost/collective_times.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "motley/testing/product_programs.h"

namespace motley::cost {
namespace {

constexpr const char* kReduce = "motley::all_reduce";

CollectiveEntry entry(int ranks, std::int64_t bytes, double seconds,
                      const std::string& route = "local", const std::string& backend = "gloo") {
  return {kReduce, backend, route, ranks, Bytes(bytes), Seconds(seconds), 0, 1};
}

CollectiveTimes times_of(const std::vector<CollectiveEntry>& entries) {
  ProfileStore store = memory_store();
  const auto put = store.put(entries);
  EXPECT_TRUE(put) << put.error().message;
  auto times = CollectiveTimes::build(store);
  EXPECT_TRUE(times) << times.error().message;
  return std::move(*times);
}

double at(const CollectiveTimes& times, int ranks, std::int64_t bytes,
          const std::string& route = "local", const std::string& backend = "gloo") {
  const auto seconds = times.at(kReduce, route, ranks, Bytes(bytes), backend);
  EXPECT_TRUE(seconds) << seconds.error().message;
  return seconds ? seconds->value : -1;
}

TEST(CollectiveTimes, FitsALine) {
  // 1 + bytes / 100, exactly.
  const CollectiveTimes times =
      times_of({entry(2, 100, 2.0), entry(2, 300, 4.0), entry(2, 1000, 11.0)});
  EXPECT_NEAR(at(times, 2, 0), 1.0, 1e-12);
  EXPECT_NEAR(at(times, 2, 500), 6.0, 1e-12);
  EXPECT_NEAR(at(times, 2, 100000), 1001.0, 1e-8);
}

TEST(CollectiveTimes, ReachesBeyondWhatWasMeasuredAsARing) {
  // 3 ranks: 4 s and 1 byte/s. 5 ranks: 4/2 of the messages, (4/5) / (2/3) = 6/5 of the bytes.
  CollectiveTimes times = times_of({entry(3, 100, 104.0), entry(3, 300, 304.0)});
  EXPECT_FALSE(times.at(kReduce, "local", 5, Bytes(100)));
  times.reach(5);
  EXPECT_NEAR(at(times, 5, 0), 8.0, 1e-9);
  EXPECT_NEAR(at(times, 5, 100), 128.0, 1e-9);
  EXPECT_NEAR(at(times, 3, 100), 104.0, 1e-9);
  times.reach(4);
  EXPECT_NEAR(at(times, 5, 100), 128.0, 1e-9) << "further than that already";
  // 2 ranks: half of the messages, (1/2) / (2/3) of the bytes.
  EXPECT_NEAR(at(times, 2, 100), 77.0, 1e-9);
}

TEST(CollectiveTimes, TakeALineForWhatWasNotMeasured) {
  CollectiveTimes times = times_of({entry(2, 100, 2.0), entry(2, 300, 4.0)});
  EXPECT_FALSE(times.at(kReduce, "1Gbps+1ms", 2, Bytes(100)));
  times.assume(kReduce, "1Gbps+1ms", 2, "gloo", {Seconds(0.5), 0.01});
  EXPECT_NEAR(at(times, 2, 100, "1Gbps+1ms"), 1.5, 1e-12);
  EXPECT_NEAR(at(times, 2, 100), 2.0, 1e-12);
  EXPECT_NEAR(times.fastest(kReduce, 2, "gloo", Bytes(100))->at(0).value, 0.5, 1e-12);
  EXPECT_NEAR(times.fastest(kReduce, 2, "gloo", Bytes(300))->at(0).value, 0.5,
              1e-12);  // 3.5 of 4 s
  EXPECT_FALSE(times.fastest(kReduce, 2, "nccl", Bytes(100)));
  EXPECT_FALSE(times.fastest(kReduce, 3, "gloo", Bytes(100)));
}

TEST(CollectiveTimes, FitsRelativeErrors) {
  // Bytes 0: 1 s and, by another size, slope s with latency l: minimise ((l - 1) / 1)^2 +
  // ((l + s - 2) / 2)^2 + ((l + 2s - 6) / 6)^2. Setting both derivatives to zero:
  //   l (1 + 1/4 + 1/36) + s (1/4 + 2/36) = 1 + 1/2 + 1/6   ->  46 l + 11 s = 60
  //   l (1/4 + 2/36)     + s (1/4 + 4/36) = 1/2 + 2/6       ->  11 l + 13 s = 30
  // so l = (60 * 13 - 11 * 30) / (46 * 13 - 121) = 450 / 477, s = (46 * 30 - 11 * 60) / 477 =
  // 720 / 477.
  const CollectiveTimes times = times_of({entry(2, 0, 1.0), entry(2, 1, 2.0), entry(2, 2, 6.0)});
  EXPECT_NEAR(at(times, 2, 0), 450.0 / 477, 1e-12);
  EXPECT_NEAR(at(times, 2, 1), 1170.0 / 477, 1e-12);
}

TEST(CollectiveTimes, NeitherLatencyNorSlopeIsNegative) {
  // Through (1, 1) and (2, 4) the latency would be -2. With 0, s minimises (s - 1)^2 +
  // ((2s - 4) / 4)^2: s (1 + 1/4) = 1 + 1/2, s = 1.2.
  CollectiveTimes times = times_of({entry(2, 1, 1.0), entry(2, 2, 4.0)});
  EXPECT_NEAR(at(times, 2, 0), 0.0, 1e-12);
  EXPECT_NEAR(at(times, 2, 1), 1.2, 1e-12);
  // Falling from 2 to 1: slope 0, l minimises ((l - 2) / 2)^2 + (l - 1)^2: l (1/4 + 1) = 1/2 + 1.
  times = times_of({entry(2, 1, 2.0), entry(2, 2, 1.0)});
  EXPECT_NEAR(at(times, 2, 1), 1.2, 1e-12);
  EXPECT_NEAR(at(times, 2, 1000), 1.2, 1e-12);
}

TEST(CollectiveTimes, BetweenRankCountsGoesTheWayOfTheTransport) {
  // A ring of n: launch 4 s, 2 (n-1) messages of 3 s, bytes / 8, 2 (n-1)/n bytes / 2. Not
  // proportional to n: 8 ranks take nearly as long as 16.
  const auto ring = [](int n, std::int64_t bytes) {
    const auto b = static_cast<double>(bytes);
    return 4 + 6.0 * (n - 1) + b / 8 + 1.0 * (n - 1) / n * b;
  };
  std::vector<CollectiveEntry> entries;
  for (const int n : {2, 4, 16})
    for (const std::int64_t bytes : {4, 100, 1000, 100000})
      entries.push_back(entry(n, bytes, ring(n, bytes)));
  const CollectiveTimes times = times_of(entries);
  for (const int n : {2, 3, 4, 5, 8, 15, 16})
    for (const std::int64_t bytes : {4, 50, 5000, 1000000})
      EXPECT_NEAR(at(times, n, bytes), ring(n, bytes), 1e-6 * ring(n, bytes)) << n << " " << bytes;
  // Measured values stay, however far the fit is from them.
  entries[0].median = Seconds(20);
  EXPECT_NEAR(at(times_of(entries), 4, 1000), ring(4, 1000), 1e-9);
}

TEST(CollectiveTimes, BetweenRankCountsWithoutATransportInProportion) {
  // A ring has less to pass on at 2 ranks than at 6: a time that falls with the ranks has no
  // transport. 2 ranks: 3 + 5 bytes; 6: 1 + bytes; 3, a quarter of the way: 2.5 + 4 bytes.
  const CollectiveTimes times =
      times_of({entry(2, 0, 3.0), entry(2, 1, 8.0), entry(6, 0, 1.0), entry(6, 1, 2.0)});
  EXPECT_NEAR(at(times, 3, 0), 2.5, 1e-12);
  EXPECT_NEAR(at(times, 3, 10), 42.5, 1e-12);
  EXPECT_NEAR(at(times, 6, 10), 11.0, 1e-12);
}

TEST(CollectiveTimes, OfTwoProtocolsTheQuickerOne) {
  // min(1 + bytes, 10 + bytes / 10), which cross at 10 bytes; halved for a part.
  std::vector<CollectiveEntry> entries;
  for (const std::int64_t bytes : {1, 2, 4, 100, 200, 400})
    entries.push_back(entry(2, bytes, std::min(1.0 + bytes, 10 + bytes / 10.0)));
  const CollectiveTimes times = times_of(entries);
  EXPECT_NEAR(at(times, 2, 3), 4.0, 1e-9);
  EXPECT_NEAR(at(times, 2, 300), 40.0, 1e-9);
  EXPECT_NEAR(times.at("motley::all_gather", "local", 2, Bytes(600))->value, 40.0, 1e-9);
  const Affine piece = times.curve(kReduce, "local", 2)->piece(300);
  EXPECT_NEAR(piece.latency.value, 10, 1e-9);
  EXPECT_NEAR(piece.seconds_per_byte, 0.1, 1e-9);
}

TEST(CollectiveTimes, OneRankTakesNothing) {
  EXPECT_EQ(times_of({}).at(kReduce, "local", 1, Bytes(8)).value(), Seconds(0.0));
}

TEST(CollectiveTimes, KeepsRoutesAndBackendsApart) {
  const CollectiveTimes times =
      times_of({entry(2, 0, 1.0), entry(2, 1, 1.0), entry(2, 0, 2.0, "1Gbps+100us"),
                entry(2, 1, 2.0, "1Gbps+100us"), entry(2, 0, 3.0, "local", "nccl"),
                entry(2, 1, 3.0, "local", "nccl")});
  EXPECT_NEAR(at(times, 2, 5), 1.0, 1e-12);
  EXPECT_NEAR(at(times, 2, 5, "1Gbps+100us"), 2.0, 1e-12);
  EXPECT_NEAR(at(times, 2, 5, "local", "nccl"), 3.0, 1e-12);
}

TEST(CollectiveTimes, PartsTakeHalfAnAllReduceWhereNobodyMeasuredThem) {
  // All-reduce: 1 + 4 bytes. All-gather of two ranks: 3 + bytes, measured.
  std::vector<CollectiveEntry> entries = {entry(2, 0, 1.0), entry(2, 1, 5.0), entry(3, 0, 1.0),
                                          entry(3, 1, 5.0), entry(2, 0, 3.0), entry(2, 1, 4.0)};
  entries[4].op = entries[5].op = "motley::all_gather";
  const CollectiveTimes times = times_of(entries);
  const auto seconds = [&](const char* op, int ranks) {
    const auto found = times.at(op, "local", ranks, Bytes(10));
    return found ? found->value : -1;
  };
  EXPECT_NEAR(seconds("motley::all_gather", 2), 13.0, 1e-9);
  EXPECT_NEAR(seconds("motley::all_gather", 3), 21.0, 1e-9);  // 1 + 4 / 2 * 10
  EXPECT_NEAR(seconds("motley::reduce_scatter", 2), 21.0, 1e-9);
  EXPECT_NEAR(seconds("motley::all_to_all", 2), 21.0, 1e-9);
  EXPECT_EQ(times.at("motley::all_to_all", "local", 4, Bytes(10)).error().message,
            "no measurement of motley::all_to_all over gloo by route local among 4 ranks (measured "
            "at two sizes or more: none); run `motley profile` with this cluster");
}

TEST(CollectiveTimes, AMethodNobodyMeasuredTakesWhatTheNativeOneTakes) {
  // All-gather: 3 + bytes; grouped among 2 ranks: 4 + 2 bytes.
  std::vector<CollectiveEntry> entries = {entry(2, 0, 3.0), entry(2, 1, 4.0), entry(2, 0, 4.0),
                                          entry(2, 1, 6.0)};
  entries[0].op = entries[1].op = "motley::all_gather";
  entries[2].op = entries[3].op = "motley::all_gather.grouped";
  const CollectiveTimes times = times_of(entries);
  EXPECT_NEAR(times.at("motley::all_gather.grouped", "local", 2, Bytes(10))->value, 24.0, 1e-9);
  EXPECT_NEAR(times.at("motley::all_gather.padded", "local", 2, Bytes(10))->value, 13.0, 1e-9);
  EXPECT_FALSE(times.at("motley::reduce_scatter.padded", "local", 2, Bytes(10)));
}

TEST(CollectiveTimes, NamesTheMissingKey) {
  // 4 ranks were measured at only one size, which gives no slope.
  const CollectiveTimes times = times_of(
      {entry(2, 0, 1.0), entry(2, 1, 2.0), entry(3, 0, 1.0), entry(3, 1, 1.0), entry(4, 8, 1.0)});
  const auto message = [&](int ranks, const std::string& route) {
    const auto seconds = times.at(kReduce, route, ranks, Bytes(8));
    if (seconds) return std::string("no error");
    EXPECT_EQ(seconds.error().code, "cost.missing-profile");
    return seconds.error().message;
  };
  EXPECT_EQ(message(4, "local"),
            "no measurement of motley::all_reduce over gloo by route local among 4 ranks (measured "
            "at two sizes or more: 2, 3 ranks); run `motley profile` with this cluster");
  EXPECT_EQ(message(2, "1Gbps+100us"),
            "no measurement of motley::all_reduce over gloo by route 1Gbps+100us among 2 ranks "
            "(measured at two sizes or more: none); run `motley profile` with this cluster");
}

// No line of two non-negative coefficients near the fitted one has a smaller relative error.
RC_GTEST_PROP(CollectiveTimesProperty, IsTheBestLine, ()) {
  std::vector<CollectiveEntry> entries;
  for (int i = 0, count = *rc::gen::inRange(2, 6); i < count; ++i) {
    entries.push_back(entry(2, 10 * i + *rc::gen::inRange(0, 10), *rc::gen::inRange(1, 100)));
  }
  const CollectiveTimes times = times_of(entries);
  const double latency = at(times, 2, 0), slope = at(times, 2, 1) - latency;
  RC_ASSERT(latency >= 0);
  RC_ASSERT(slope >= -1e-12);
  const auto error = [&](double l, double s) {
    double sum = 0;
    for (const CollectiveEntry& e : entries) {
      sum += std::pow((l + s * static_cast<double>(e.bytes.value)) / e.median.value - 1, 2);
    }
    return sum;
  };
  const double best = error(latency, slope);
  for (const double dl : {-0.1, 0.0, 0.1}) {
    for (const double ds : {-0.01, 0.0, 0.01}) {
      if (latency + dl >= 0 && slope + ds >= 0) {
        RC_ASSERT(error(latency + dl, slope + ds) >= best - 1e-9);
      }
    }
  }
}

}  // namespace
}  // namespace motley::cost
