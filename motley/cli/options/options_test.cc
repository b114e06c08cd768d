#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/cli/options/planning_options.h"
#include "motley/cli/options/rehearsal_options.h"
#include "motley/cli/options/run_options.h"

namespace motley::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

template <typename T>
std::string message(const Result<T>& result) {
  return result ? "none" : result.error().message;
}

PlanningOptions usual() {
  PlanningOptions options;
  options.model = "m.motley";
  options.cluster = "c.toml";
  options.global_batch = 8;
  return options;
}

std::string said(const std::vector<Flag>& flags, const std::string& name, const std::string& text) {
  for (const Flag& flag : flags)
    if (flag.names == name) return message(std::get<Flag::Text>(flag.target).take(text));
  return "no such flag";
}

RunOptions usual_run() {
  RunOptions options;
  options.plan.planning = usual();
  options.training.data.path = "d.npz";
  options.training.steps = 5;
  return options;
}

TEST(ParseBatchSplit, CommasPartIt) {
  EXPECT_THAT(parse_batch_split("24,12, 4").value(), ElementsAre(24, 12, 4));
  EXPECT_THAT(parse_batch_split("").value(), IsEmpty());
  for (const char* bad : {"24;12", "24,-1", "a", "24,"})
    EXPECT_EQ(message(parse_batch_split(bad)),
              std::string("--batch-split: found '") + bad +
                  "', wanted samples of each device such as 24,12,4");
}

TEST(MakeQuestion, SaysWhatIsMissingInOrder) {
  PlanningOptions options = usual();
  options.global_batch = 0;
  EXPECT_EQ(message(make_question(options, GlobalBatch::kGiven)),
            "how many samples a step? give --global-batch N");
  EXPECT_EQ(make_question(options, GlobalBatch::kElsewhere)->global_batch, 1);
  options.global_batch = -1;
  EXPECT_FALSE(make_question(options, GlobalBatch::kElsewhere));
  options.cluster.clear();
  EXPECT_EQ(message(make_question(options, GlobalBatch::kGiven)),
            "which devices? give -C CLUSTER.toml (motley probe writes one)");
  options.model.clear();
  EXPECT_EQ(message(make_question(options, GlobalBatch::kGiven)),
            "which model? give -m MODEL.motley (written by python -m motley.export)");
}

TEST(MakeQuestion, ChoicesBecomeValues) {
  PlanningOptions options = usual();
  options.batch_norm = plan::BatchNormMode::kLocal;
  options.bucket = "1MiB";
  options.exclude = {"b:0"};
  const control::Question question = make_question(options, GlobalBatch::kGiven).value();
  EXPECT_EQ(question.lowering.batch_norm, plan::BatchNormMode::kLocal);
  EXPECT_EQ(question.lowering.bucket_bytes.value, 1 << 20);
  EXPECT_THAT(question.exclude, ElementsAre("b:0"));
  EXPECT_EQ(said(planning_flags(options), "--batch-norm", "globl"),
            "--batch-norm: found 'globl', wanted global or local");
  options.updates = "portabel";
  EXPECT_EQ(message(make_question(options, GlobalBatch::kGiven)),
            "--updates: found 'portabel', wanted 'native' or 'portable' or 'auto'");
}

TEST(MakePriceChoices, TheStoreIsTheFlagsOrTheContexts) {
  const Context context{.profile_store = "/cache/profiles.db"};
  PlanningOptions options = usual();
  EXPECT_EQ(make_price_choices(options, context)->profiles, "/cache/profiles.db");
  options.profiles = "mine.db";
  EXPECT_EQ(make_price_choices(options, context)->profiles, "mine.db");
}

TEST(MakePriceChoices, ProfileIsAutoNeverOrModel) {
  PlanningOptions options = usual();
  const std::pair<const char*, control::Missing> known[] = {{"auto", control::Missing::kMeasure},
                                                            {"never", control::Missing::kRefuse},
                                                            {"model", control::Missing::kModel}};
  for (const auto& [text, missing] : known) {
    EXPECT_EQ(said(planning_flags(options), "--profile", text), "none");
    EXPECT_EQ(make_price_choices(options, {})->missing, missing) << text;
  }
  EXPECT_EQ(said(planning_flags(options), "--profile", "always"),
            "--profile: found 'always', wanted auto, never or model");
}

TEST(MakePriceChoices, RoundsAreTheFlagsOrTheEnvironmentsOrThree) {
  PlanningOptions options = usual();
  EXPECT_EQ(make_price_choices(options, {})->rounds, 3);
  Context context{.environment = {{"MOTLEY_PROFILE_ROUNDS", "1"}}};
  EXPECT_EQ(make_price_choices(options, context)->rounds, 1);
  options.profile_rounds = "7";
  EXPECT_EQ(make_price_choices(options, context)->rounds, 7);
  options.profile_rounds = "0";
  EXPECT_EQ(message(make_price_choices(options, context)),
            "--profile-rounds: found '0', wanted 1 to 100");
  options.profile_rounds = "";
  context.environment["MOTLEY_PROFILE_ROUNDS"] = "";
  EXPECT_EQ(make_price_choices(options, context)->rounds, 3);
  context.environment["MOTLEY_PROFILE_ROUNDS"] = "few";
  EXPECT_EQ(message(make_price_choices(options, context)),
            "MOTLEY_PROFILE_ROUNDS: found 'few', wanted 1 to 100");
}

TEST(MakePlanChoices, ATimeLimitIsAboveZero) {
  PlanningOptions options = usual();
  EXPECT_FALSE(make_plan_choices(options, {})->time_limit);
  options.time_limit = 0.5;
  EXPECT_EQ(make_plan_choices(options, {})->time_limit, Seconds(0.5));
  options.time_limit = 0;
  EXPECT_EQ(message(make_plan_choices(options, {})),
            "--time-limit: found 0, wanted seconds above 0");
}

TEST(MakeTrainChoices, EnforceSaysWhatWorkersHold) {
  RunOptions options = usual_run();
  const std::pair<const char*, control::Enforce> known[] = {
      {"worker", control::Enforce::kSpeedsAndLinks},
      {"speeds", control::Enforce::kSpeeds},
      {"outside", control::Enforce::kNothing}};
  for (const auto& [text, enforce] : known) {
    EXPECT_EQ(said(training_flags(options), "--enforce", text), "none");
    EXPECT_EQ(make_train_choices(options)->enforce, enforce) << text;
  }
}

TEST(MakeTrainChoices, FlagsBecomeValues) {
  RunOptions options = usual_run();
  const std::pair<const char*, const char*> given[] = {
      {"--tokens", "u32"}, {"--shuffle", "7"}, {"--schedule", "linear:0.1"}};
  options.training.schedule.warmup = 2;
  options.plan.planning.seed = 3;
  for (const auto& [name, text] : given)
    EXPECT_EQ(said(training_flags(options), name, text), "none");
  const control::TrainChoices choices = make_train_choices(options).value();
  EXPECT_EQ(choices.data.token_width, 4);
  EXPECT_EQ(choices.shuffle, 7U);
  EXPECT_EQ(
      choices.schedule,
      (run::Schedule{.kind = run::ScheduleKind::kLinear, .warmup = 2, .steps = 5, .floor = 0.1}));
  EXPECT_EQ(choices.seed, 3U);
  EXPECT_FALSE(make_train_choices(usual_run())->shuffle);
}

TEST(MakeTrainChoices, EachWrongFlagIsNamed) {
  const auto fault = [](const auto& change) {
    RunOptions options = usual_run();
    change(options.training);
    return message(make_train_choices(options));
  };
  const auto refusal = [](const char* name, const char* text) {
    RunOptions options;
    return said(training_flags(options), name, text);
  };
  using T = control::TrainChoices;
  EXPECT_EQ(fault([](T& t) { t.data.path = ""; }),
            "no training data: give --data FILE (.npz, .npy, .safetensors, .parquet, .arrow, flat "
            "tokens) or python:FILE.py:FUNCTION");
  EXPECT_EQ(refusal("--tokens", "u8"), "--tokens: found 'u8', wanted u16 or u32");
  EXPECT_EQ(refusal("--shuffle", "-1"), "--shuffle: found '-1', wanted none or a seed from 0 on");
  EXPECT_EQ(fault([](T& t) { t.steps = 0; }),
            "how long? give --steps N with N >= 1, or --epochs X");
  EXPECT_EQ(fault([](T& t) { t.timeout = Seconds(0); }),
            "--timeout: wanted a number of seconds above 0");
  EXPECT_EQ(refusal("--enforce", "none"),
            "--enforce: found 'none', wanted worker, speeds or outside");
  EXPECT_EQ(refusal("--transport", "mpi"), "--transport: found 'mpi', wanted auto or gloo");
}

TEST(DefaultRunDir, IsNamedAfterTheModel) {
  EXPECT_EQ(default_run_dir("/models/char_gpt.motley"), "runs/char_gpt");
}

TEST(CheckRehearsal, SaysWhatIsWrong) {
  const auto check = [](RehearsalOptions options, std::int64_t steps = 10) {
    return message(check_rehearsal(options, steps));
  };
  EXPECT_EQ(check({}), "none");
  EXPECT_EQ(check({.adapt = "split", .policy = "even"}), "none");
  EXPECT_EQ(check({.policy = "even"}), "--policy goes with --adapt plan, split or batch");
  EXPECT_EQ(check({.decisions = "d"}), "--decisions goes with --adapt plan, split or batch");
  EXPECT_EQ(check({.adapt = "x"}), "--adapt: found 'x', wanted plan, split or batch");
  EXPECT_EQ(check({.adapt = "plan", .policy = "even"}),
            "--policy goes with --adapt split or batch");
  EXPECT_EQ(check({.adapt = "plan"}, 0), "--steps: wanted a number above 0");
  EXPECT_EQ(check({.adapt = "plan", .change_steps = -1}),
            "--change-steps: wanted a number from 0 on");
  EXPECT_EQ(check({.adapt = "plan", .change_pause = -1}),
            "--change-pause: wanted seconds from 0 to 1e9");
}

}  // namespace
}  // namespace motley::cli
