#include "motley/cost/links/collective_fit.h"

#include <gtest/gtest.h>

#include <functional>

namespace motley::cost {
namespace {

using Shape = SizeCurve::Shape;

std::vector<CollectiveSample> sampled(const std::vector<double>& sizes,
                                      const std::function<double(double)>& seconds, int ranks = 2) {
  std::vector<CollectiveSample> samples;
  for (const double bytes : sizes) samples.push_back({ranks, bytes, Seconds(seconds(bytes))});
  return samples;
}

SizeCurve curve_of(const std::vector<CollectiveSample>& samples) {
  const auto curve = fit_collective(samples);
  EXPECT_TRUE(curve) << curve.error().message;
  return *curve;
}

const std::vector<double> kSizes = {1, 2, 4, 8, 16, 32, 64, 128};

TEST(FitCollective, ALineStaysALine) {
  const SizeCurve curve = curve_of(sampled(kSizes, [](double b) { return 3 + b / 4; }));
  EXPECT_EQ(curve.shape, Shape::kOne);
  EXPECT_NEAR(curve.at(0).value, 3, 1e-9);
  EXPECT_NEAR(curve.at(1000).value, 253, 1e-6);
}

TEST(FitCollective, FindsTheFasterOfTwoProtocols) {
  // 1 + b up to 12 bytes, then 10 + b / 4: they cross at 9 / 0.75 = 12.
  const SizeCurve curve =
      curve_of(sampled(kSizes, [](double b) { return std::min(1 + b, 10 + b / 4); }));
  EXPECT_EQ(curve.shape, Shape::kFaster);
  EXPECT_NEAR(curve.small.latency.value, 1, 1e-9);
  EXPECT_NEAR(curve.large.seconds_per_byte, 0.25, 1e-9);
  EXPECT_NEAR(curve.at(12).value, 13, 1e-9);
  EXPECT_NEAR(curve.at(1000).value, 260, 1e-6);
}

TEST(FitCollective, FindsAFloor) {
  // 9 s for any size up to 9 bytes, then 1 s per byte.
  const SizeCurve curve = curve_of(sampled(kSizes, [](double b) { return std::max(9.0, b); }));
  EXPECT_EQ(curve.shape, Shape::kSlower);
  EXPECT_NEAR(curve.at(0).value, 9, 1e-9);
  EXPECT_NEAR(curve.at(9).value, 9, 1e-9);
  EXPECT_NEAR(curve.at(1000).value, 1000, 1e-6);
}

TEST(FitCollective, FewSizesGiveOnePiece) {
  // Five sizes: no split leaves three on both sides.
  EXPECT_EQ(curve_of(sampled({1, 2, 4, 8, 16}, [](double b) { return std::max(4.0, b); })).shape,
            Shape::kOne);
}

TEST(FitCollective, SaysWhatItCannotFit) {
  auto curve = fit_collective({{2, 4, Seconds(1)}, {2, 4, Seconds(2)}});
  ASSERT_FALSE(curve);
  EXPECT_EQ(curve.error().message,
            "a collective was measured at fewer than two sizes; latency and bandwidth cannot be "
            "told apart");
  curve = fit_collective({{2, 4, Seconds(1)}, {2, 8, Seconds(0)}});
  ASSERT_FALSE(curve);
  EXPECT_EQ(curve.error().message,
            "a collective of 8 bytes took 0 s; times must be above 0 and bytes not below");
}

TEST(FitTransport, TellsEndsFromLinks) {
  // All-reduce of B bytes by ring: 5 + 2 (n-1) 0.5 + B / 8 + 2 (n-1)/n B / 4.
  std::vector<CollectiveSample> samples;
  for (const int n : {2, 4}) {
    for (const double bytes : {1.0, 16.0, 256.0}) {
      samples.push_back({n, bytes, Seconds(5 + (n - 1) + bytes / 8 + (n - 1) * bytes / n / 2)});
    }
  }
  const auto fit = fit_transport(Collective::kAllReduce, Algorithm::kRing, samples);
  ASSERT_TRUE(fit) << fit.error().message;
  EXPECT_NEAR(fit->transport.launch.value, 5, 1e-6);
  EXPECT_NEAR(fit->transport.latency.value, 0.5, 1e-6);
  EXPECT_NEAR(fit->transport.seconds_per_byte, 0.125, 1e-6);
  ASSERT_TRUE(fit->port);
  EXPECT_NEAR(fit->port->value, 4, 1e-6);
}

TEST(FitTransport, WhatItFitsIsWhatTransfersTake) {
  // Fitted to an all-to-all among 2, 3 and 5 ranks on a network, it recovers that network.
  const Transport truth{Seconds(2e-6), 0, Seconds(30e-6), 0.1e-9};
  std::vector<CollectiveSample> samples;
  for (const int n : {2, 3, 5}) {
    cluster::Cluster cluster;
    std::vector<DeviceId> devices;
    for (int i = 0; i < n; ++i) {
      cluster.nodes.push_back({});
      cluster.devices.push_back({.node = NodeId(i)});
      devices.emplace_back(i);
    }
    cluster.links.push_back({{}, BytesPerSecond(2e9), Seconds(0.0)});
    const Network network(cluster);
    for (const double bytes : {1e3, 1e6}) {
      const CollectiveCall call = even_call(Collective::kAllToAll, devices, n * bytes);
      const Transfer transfer = build_transfer(network, call, Algorithm::kDirect, truth);
      samples.push_back({n, bytes, isolated_time(transfer, network.capacities())});
    }
  }
  const auto fit = fit_transport(Collective::kAllToAll, Algorithm::kDirect, samples);
  ASSERT_TRUE(fit) << fit.error().message;
  EXPECT_NEAR(fit->transport.launch.value, 30e-6, 1e-9);
  EXPECT_NEAR(fit->transport.latency.value, 2e-6, 1e-9);
  EXPECT_NEAR(fit->transport.seconds_per_byte, 0.1e-9, 1e-14);
  EXPECT_NEAR(fit->port->value, 2e9, 1e3);
}

TEST(FitTransport, SaysWhatItCannotFit) {
  auto fit = fit_transport(Collective::kAllReduce, Algorithm::kRing,
                           {{4, 1, Seconds(1)}, {4, 2, Seconds(2)}});
  ASSERT_FALSE(fit);
  EXPECT_EQ(fit.error().message,
            "all_reduce was measured among 4 ranks only; links and ends cannot be told apart, "
            "measure another number of ranks");
  fit = fit_transport(Collective::kAllReduce, Algorithm::kRing,
                      {{1, 1, Seconds(1)}, {4, 2, Seconds(2)}});
  ASSERT_FALSE(fit);
  EXPECT_EQ(fit.error().message, "a collective among 1 ranks; wanted 2 or more");
}

TEST(FitInterference, IsWhatComputeLosesWhileCommunicating) {
  // The header's example, and no interference if nothing is lost.
  EXPECT_NEAR(*fit_interference({{Seconds(10), Seconds(12), Seconds(8)}}), 1.0 / 3, 1e-12);
  EXPECT_EQ(*fit_interference({{Seconds(10), Seconds(9), Seconds(8)}}), 0);
  // Relative errors: overlaps of 1/2 and 1/4 of the time together, of which 1/4 and 1/8 are lost: a
  // lost share of 1/2 in both, f = 1.
  EXPECT_NEAR(*fit_interference({{Seconds(3), Seconds(4), Seconds(2)},
                                 {Seconds(700), Seconds(800), Seconds(200)}}),
              1, 1e-12);
}

TEST(FitInterference, HasAMost) {
  // All of the overlap or more is lost: compute stops. 100 / 101 of it gives the same.
  EXPECT_EQ(*fit_interference({{Seconds(1), Seconds(3), Seconds(2)}}), kMostInterference);
  EXPECT_EQ(*fit_interference({{Seconds(1), Seconds(5), Seconds(2)}}), kMostInterference);
  EXPECT_NEAR(*fit_interference({{Seconds(102), Seconds(202), Seconds(101)}}), 100, 1e-9);
}

TEST(FitInterference, SaysWhatItCannotFit) {
  auto fit = fit_interference({});
  ASSERT_FALSE(fit);
  EXPECT_EQ(fit.error().message, "compute and communication never overlapped");
  fit = fit_interference({{Seconds(0), Seconds(3), Seconds(2)}});
  ASSERT_FALSE(fit);
  EXPECT_EQ(fit.error().message,
            "compute of 0 s alone and 3 s beside 2 s of communication; times must be above 0");
}

}  // namespace
}  // namespace motley::cost
