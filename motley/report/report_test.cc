#include "motley/report/report.h"

#include <gmock/gmock.h>

#include "motley/base/json.h"

namespace motley::report {
namespace {

using ::testing::HasSubstr;

trace::Trace two_devices(trace::Source source) {
  trace::Trace trace;
  trace.source = source;
  trace.devices = {"a:0", "b:0"};
  trace.names = {{"aten::mm h.0", "motley::all_reduce bucket 0"}, {"aten::mm h.0"}};
  // a: computes 0-3 ms, exchanges 3-4 ms; b: computes 0-4 ms. One step of 4 ms.
  trace.intervals = {{0, Lane::kCompute, 0, InstructionId(0), 0, 3000000, 0},
                     {0, Lane::kTransfer, 0, InstructionId(1), 3000000, 4000000, 64},
                     {1, Lane::kCompute, 0, InstructionId(0), 0, 4000000, 0}};
  trace.steps = {{0, 0, 0, 4000000, 1000}, {1, 0, 0, 4000000, 2000}};
  return trace;
}

TEST(ChromeTrace, HasOneSliceAnIntervalInMicroseconds) {
  const auto json = parse_json(print_chrome_trace(two_devices(trace::Source::kMeasured)), "trace");
  ASSERT_TRUE(json);
  int slices = 0, counters = 0;
  for (const Json& event : (*json)["traceEvents"]) {
    if (event["ph"] == "C") ++counters;
    if (event["ph"] != "X") continue;
    ++slices;
    if (event["name"] != "motley::all_reduce bucket 0") continue;
    EXPECT_EQ(event["tid"], 1);
    EXPECT_EQ(event["ts"], 3000.0);   // 3 ms
    EXPECT_EQ(event["dur"], 1000.0);  // 1 ms
    EXPECT_EQ(event["args"]["bytes"], 64);
  }
  EXPECT_EQ(slices, 3);
  EXPECT_EQ(counters, 2);
}

TEST(ChromeTrace, GivesSendsThatOverlapThreadsOfTheirOwn) {
  // 0-3, 1-2 beside it, and one from 2 on, when the second thread is free.
  trace::Trace trace = two_devices(trace::Source::kPredicted);
  trace.names[1] = {"aten::mm h.0", "motley::send x"};
  trace.intervals.push_back({1, Lane::kPeer, 0, InstructionId(1), 0, 3000000, 64});
  trace.intervals.push_back({1, Lane::kPeer, 0, InstructionId(1), 1000000, 2000000, 64});
  trace.intervals.push_back({1, Lane::kPeer, 0, InstructionId(1), 2000000, 4000000, 64});
  const auto json = parse_json(print_chrome_trace(trace), "trace");
  ASSERT_TRUE(json);
  std::vector<int> threads;
  std::vector<std::string> names;
  for (const Json& event : (*json)["traceEvents"]) {
    if (event["ph"] == "X" && event["name"] == "motley::send x")
      threads.push_back(event["tid"].get<int>());
    if (event["name"] == "thread_name" && event["tid"].get<int>() >= 2)
      names.push_back(event["args"]["name"].get<std::string>());
  }
  EXPECT_EQ(threads, (std::vector<int>{2, 3, 3}));
  EXPECT_EQ(names, (std::vector<std::string>{"peer", "peer 2"}));
}

TEST(Comparison, ShowsErrorsAndWhereTheTimeGoes) {
  const trace::Trace predicted = two_devices(trace::Source::kPredicted);
  const trace::Trace measured = two_devices(trace::Source::kMeasured);
  // 5 ms against 4 is 25 % too long; 3 MiB against 4 is 25 % too little.
  const std::string text = print_comparison({predicted, Seconds(0.005), {Bytes(3 << 20)}},
                                            {measured, Seconds(0.004), {Bytes(4 << 20)}});
  EXPECT_THAT(text, HasSubstr("step time                        5 ms         4 ms    25.0%"));
  EXPECT_THAT(text, HasSubstr("peak memory a:0                 3 MiB        4 MiB   -25.0%"));
  // a computes 3 of its 4 ms and exchanges 1; b computes all the time.
  EXPECT_THAT(text, HasSubstr("  a:0          75.0%   75.0%   25.0%   25.0%    0.0%    0.0%"));
  EXPECT_THAT(text, HasSubstr("  b:0         100.0%  100.0%    0.0%    0.0%"));
}

TEST(Comparison, OperatorsThatDeviateMostComeFirst) {
  const trace::Trace predicted = two_devices(trace::Source::kPredicted);
  trace::Trace measured = two_devices(trace::Source::kMeasured);
  // 7 and 1 of 8 ms; measured 5.4 and 0.4 of 5.8: sum begins 0.6 ms later, b takes 1.6 less.
  measured.intervals[1].begin += 600000;
  measured.intervals[2].end -= 1600000;
  // b's time, 2.4 of 5.8, was not predicted.
  measured.names = {{"aten::mm h.0", "motley::all_reduce bucket 0"}, {"aten::addmm h.0"}};
  const auto shares = compare_operators(predicted, measured);
  ASSERT_EQ(shares.size(), 3U);
  EXPECT_EQ(shares[0].name, "aten::addmm");
  EXPECT_DOUBLE_EQ(shares[0].deviation(), -2.4 / 5.8);
  EXPECT_EQ(shares[1].name, "aten::mm");
  EXPECT_DOUBLE_EQ(shares[1].predicted, 7.0 / 8);
  EXPECT_DOUBLE_EQ(shares[1].measured, 3.0 / 5.8);
  const std::string text = print_comparison({predicted, {}, {}}, {measured, {}, {}});
  // 0.4 / 5.8 = 6.9 %.
  EXPECT_THAT(
      text, HasSubstr("  motley::all_reduce                        12.5%       6.9%       +5.6\n"));
}

cluster::Cluster two_device_cluster() {
  cluster::Cluster cluster;
  cluster.nodes = {{.name = "a"}, {.name = "b"}};
  cluster.devices = {
      {.node = NodeId(0), .name = "a:0", .kind = "cpu", .memory = Bytes(std::int64_t{1} << 20)},
      {.node = NodeId(1), .name = "b:0", .kind = "cpu"}};
  return cluster;
}

TEST(Outcome, PutsThePlanBesideBaselinesAndBound) {
  plan::PlanOutcome outcome;
  outcome.reason = plan::Reason::kOptimal;
  outcome.planner = "auto";
  outcome.plan.emplace();
  outcome.plan->global_batch = 10;
  outcome.plan->replicas = plan::make_replicas({DeviceId(0)}, {10});
  outcome.predicted_step = Seconds(2);
  outcome.lower_bound = Seconds(2);
  outcome.peak = {{DeviceId(0), Bytes(std::int64_t{1} << 19)}};
  outcome.idle = {DeviceId(1)};
  outcome.equal_split = {.fits = true, .step = Seconds(3), .label = "5:5"};
  outcome.considered = 4;
  outcome.why = {"b:0 stays idle"};
  EXPECT_EQ(print_outcome(outcome, two_device_cluster()),
            "10 samples a step, planner auto (optimal, 4 plans considered)\n\n"
            "  plan                   samples                  step  relative  fits\n"
            "  chosen                 10                        2 s     1.00x  yes\n"
            "  equal split            5:5                       3 s     1.50x  yes\n"
            "  lower bound            -                         2 s     1.00x  -\n"
            "\n"
            "  device      samples   share  peak memory\n"
            "  a:0              10    100%  512 KiB of 1 MiB (50%)\n"
            "  b:0               0      0%  idle\n"
            "\n"
            "  b:0 stays idle\n");
}

TEST(Outcome, InfeasibleIsItsArithmetic) {
  plan::PlanOutcome outcome;
  outcome.why = {"a:0 needs 2 MiB for 1 sample, has 1 MiB"};
  EXPECT_EQ(print_outcome(outcome, two_device_cluster()),
            "no feasible plan\n  a:0 needs 2 MiB for 1 sample, has 1 MiB\n");
}

}  // namespace
}  // namespace motley::report
