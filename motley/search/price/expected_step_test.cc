#include "motley/search/price/expected_step.h"

#include <gtest/gtest.h>

#include <cmath>

#include "motley/program/program_text.h"
#include "motley/testing/label_cost.h"

namespace motley::search {
namespace {

/// Devices a:0, b:0, ... that compute for 1 ms and then meet in a sum without cost.
program::Program meeting_of(int devices) {
  std::string group = "group 0:", text;
  for (int rank = 0; rank < devices; ++rank) {
    group += fmt::format(" {}", rank);
    text += fmt::format(
        "device \"{}:0\" samples 0 first 0\nbuffer %0: state u8[0] \"s\"\n"
        "compute ^0: aten::f() \"1000000\"\n"
        "transfer ^1: motley::all_reduce(%0) group 0 wait ^0\n",
        static_cast<char>('a' + rank));
  }
  const std::string head = "motley.program/1\nmodel \"\" plan \"\" global_batch 8\n";
  return program::parse_program(head + group + "\n" + text, "p").value();
}

using Jitters = std::map<std::string, simulate::Jitter>;

double expected(int devices, const Jitters& jitter) {
  const testing::LabelCost cost(0);
  return expected_step(Seconds(1e-3), meeting_of(devices), cost, jitter).value().value;
}

TEST(ExpectedStep, IsTheSimulatedOneWhereNothingVaries) {
  EXPECT_EQ(expected(2, {}), 1e-3);
  EXPECT_EQ(expected(2, {{"elsewhere:0", {.per_step = 0.5}}}), 1e-3);
}

// exp(s z - s^2 / 2), s^2 = ln 1.25, has mean 1, deviation 0.5, and median 0.894, below 1.
TEST(ExpectedStep, IsNeverShorterThanTheSimulatedOne) {
  EXPECT_EQ(expected(1, {{"a:0", {.per_step = 0.5}}}), 1e-3);
}

// The greater of two such factors is below x with probability F(x)^2, so its median is where
// F = sqrt(1/2), z = 0.545; of eight z = 1.38. 200 runs find it to about a hundredth.
TEST(ExpectedStep, MembersWaitForTheSlowest) {
  const double s = std::sqrt(std::log(1.01));
  Jitters jitter;
  for (char name = 'a'; name < 'i'; ++name) jitter[std::string(1, name) + ":0"] = {.per_step = 0.1};
  EXPECT_NEAR(expected(2, jitter), 1e-3 * std::exp(0.545 * s - s * s / 2), 0.02e-3);
  EXPECT_NEAR(expected(8, jitter), 1e-3 * std::exp(1.38 * s - s * s / 2), 0.02e-3);
}

}  // namespace
}  // namespace motley::search
