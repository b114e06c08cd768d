#include "motley/cli/demo/demo_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace motley::cli {
namespace {

Timings timings_of(const std::string& thing, const std::vector<double>& milliseconds) {
  Timings timings{thing, {}};
  for (const double each : milliseconds) timings.steps.push_back(Seconds(1e-3 * each));
  return timings;
}

/// `others`: processors that others kept busy, with 0.2 to spare.
TimedInTurns timed_in_turns(double predicted, const std::vector<double>& plan,
                            const std::vector<double>& equal, double others = 0) {
  TimedInTurns timed{timings_of("the equal split", equal), timings_of("the plan", plan),
                     Seconds(1e-3 * predicted), 0.2};
  timed.plan.others = others;
  return timed;
}

TEST(DemoTimings, AreApartByTheLongestOverTheShortest) {
  EXPECT_DOUBLE_EQ(timings_of("it", {131, 100}).apart(), 0.31);
  EXPECT_DOUBLE_EQ(timings_of("it", {110, 100, 125}).apart(), 0.25);
  EXPECT_EQ(timings_of("it", {100}).apart(), 0);
  EXPECT_EQ(timings_of("it", {110, 100, 125}).typical(), Seconds(0.11));
}

TEST(SpareProcessors, AreThoseThatNoDeviceHasAndAFifth) {
  EXPECT_DOUBLE_EQ(spare_processors(1), 0.2);
  EXPECT_DOUBLE_EQ(spare_processors(2), 0.2);
  EXPECT_DOUBLE_EQ(spare_processors(3), 0.2);
  EXPECT_DOUBLE_EQ(spare_processors(16), 13.2);
}

TEST(SpareProcessors, AreNeededBesideEitherThing) {
  TimedInTurns timed = timed_in_turns(100, {100}, {200}, 0.2);
  EXPECT_FALSE(timed.is_shared());
  timed.equal.others = 0.3;
  EXPECT_TRUE(timed.is_shared());
}

struct JudgedCase {
  const char* what;
  double predicted;  // milliseconds
  std::vector<double> plan, equal;
  Profile profile;
  Verdict verdict;
  double others = 0;
};

/// With a limit of 25 %, for which the sums below are exact in binary.
class JudgePredictionTest : public ::testing::TestWithParam<JudgedCase> {};

TEST_P(JudgePredictionTest, TellsNoiseFromError) {
  const JudgedCase& at = GetParam();
  const auto judged = judge_prediction(timed_in_turns(at.predicted, at.plan, at.equal, at.others),
                                       0.25, at.profile);
  EXPECT_EQ(judged.verdict, at.verdict) << "error " << judged.value << " of " << judged.allowed;
}

constexpr Profile kFirst = Profile::kFirst, kRenewed = Profile::kRenewed;
INSTANTIATE_TEST_SUITE_P(
    Cases, JudgePredictionTest,
    ::testing::Values(
        JudgedCase{"NearBoth", 101, {100, 104}, {200, 204}, kFirst, Verdict::kRight},
        JudgedCase{
            "WithinTheLimitOfOneTiming", 76, {100, 104}, {200, 204}, kFirst, Verdict::kRight},
        // 1 - 60/100 = 40 % of the nearer one; limit plus a spread of 16 % are 41 %.
        JudgedCase{"BeyondTheLimitByNoMoreThanTimingsAreApart",
                   60,
                   {100, 116},
                   {200, 200},
                   kFirst,
                   Verdict::kRight},
        JudgedCase{
            "BeyondBothByMoreThanThat", 58, {100, 116}, {200, 200}, kFirst, Verdict::kProfileAgain},
        // 150/104 - 1 = 44 % of the nearer one, beyond 25 + 4 %.
        JudgedCase{
            "TooLongIsAnErrorToo", 150, {100, 104}, {200, 200}, kFirst, Verdict::kProfileAgain},
        JudgedCase{
            "StillSoAfterANewProfile", 58, {100, 116, 110}, {200, 200}, kRenewed, Verdict::kWrong},
        JudgedCase{
            "RightAfterANewProfile", 98, {100, 104, 101}, {200, 200}, kRenewed, Verdict::kRight},
        // The third timing shows that the machine has changed since the first two.
        JudgedCase{"ChangedSinceTheNewProfile",
                   58,
                   {100, 104, 130},
                   {200, 200},
                   kRenewed,
                   Verdict::kNoise},
        JudgedCase{"TimingsOfThePlanContradictEachOther",
                   115,
                   {100, 131},
                   {200, 200},
                   kFirst,
                   Verdict::kNoise},
        // 115 is 10 % above 104: the timed plan is as predicted, whatever the equal split does.
        JudgedCase{"ThePlanIsAsPredictedBesideAnEqualSplitThatContradictsItself",
                   115,
                   {100, 104},
                   {200, 262},
                   kFirst,
                   Verdict::kRight},
        JudgedCase{"ThoseOfTheEqualSplitDo", 58, {100, 104}, {200, 262}, kFirst, Verdict::kNoise},
        JudgedCase{
            "ApartByJustTheLimit", 48, {100, 125}, {200, 200}, kFirst, Verdict::kProfileAgain}),
    [](const auto& each) { return std::string(each.param.what); });

TEST(JudgePrediction, SaysTheErrorOfTheNearerTiming) {
  // 80 is 20 % below 100, and 29 % below 112; 15 + 12 % are allowed.
  const auto judged = judge_prediction(timed_in_turns(80, {112, 100}, {1, 1}), 0.15, kFirst);
  EXPECT_NEAR(judged.value, 0.2, 1e-12);
  EXPECT_NEAR(judged.allowed, 0.27, 1e-12);
  const auto noisy = judge_prediction(timed_in_turns(80, {128, 100}, {1, 1}), 0.15, kFirst);
  EXPECT_EQ(noisy.allowed, 0.15);
}

struct SpeedupCase {
  const char* what;
  std::vector<double> plan, equal;
  Verdict verdict;
  double value;
  double others = 0;
};

class JudgeSpeedupTest : public ::testing::TestWithParam<SpeedupCase> {};

TEST_P(JudgeSpeedupTest, IsWrongOnlyWhereNoTimingLetsItBeRight) {
  const SpeedupCase& at = GetParam();
  const auto judged = judge_speedup(timed_in_turns(0, at.plan, at.equal, at.others), 1.5, 0.25);
  EXPECT_EQ(judged.verdict, at.verdict);
  EXPECT_NEAR(judged.value, at.value, 1e-12);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, JudgeSpeedupTest,
    ::testing::Values(
        SpeedupCase{"QuickEnough", {100, 100}, {200, 220}, Verdict::kRight, 2.1},
        // 152 / 100 would suffice; typical is 146 / 105.
        SpeedupCase{
            "QuickEnoughByTheKindestTimings", {100, 110}, {140, 152}, Verdict::kRight, 146.0 / 105},
        SpeedupCase{"TooLittleByAnyTimings", {100, 110}, {140, 148}, Verdict::kWrong, 144.0 / 105},
        // A spread of 30 % shows only that it may be faster.
        SpeedupCase{
            "TooLittleOnABusyMachine", {100, 130}, {140, 144}, Verdict::kNoise, 142.0 / 115},
        SpeedupCase{"EnoughOnABusyMachine", {100, 130}, {210, 204}, Verdict::kRight, 1.8},
        SpeedupCase{"SlowerEvenThere", {100, 130}, {90, 98}, Verdict::kWrong, 94.0 / 115},
        // Three devices and ten processes on two processors: 530 and 489 ms against 419 and 443.
        SpeedupCase{"SlowerOnAMachineThatIsShared",
                    {530, 489},
                    {419, 443},
                    Verdict::kNoise,
                    862.0 / 1019,
                    1.6},
        SpeedupCase{"EnoughThere", {100, 100}, {210, 210}, Verdict::kRight, 2.1, 1.6}),
    [](const auto& each) { return std::string(each.param.what); });

TEST(DemoNoise, NamesTheNoisierThingAndTheOthers) {
  EXPECT_EQ(print_noise(timed_in_turns(58, {100, 104}, {200, 262}), 0.15, "the prediction"),
            "the machine was busy: two timings of the equal split differ by 31 %; the prediction "
            "cannot be checked");
  EXPECT_EQ(print_noise(timed_in_turns(58, {100, 104, 130}, {200, 201}, 1.64), 0.15, "the gain"),
            "the machine was busy: three timings of the plan differ by 30 %, and others kept 1.6 "
            "processors busy; the gain cannot be checked");
  EXPECT_EQ(print_noise(timed_in_turns(58, {100, 104}, {200, 201}, 1.64), 0.15, "the gain"),
            "the machine was busy: others kept 1.6 processors busy; the gain cannot be checked");
}

}  // namespace
}  // namespace motley::cli
