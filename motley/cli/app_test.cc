#include "motley/cli/app.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "motley/base/json.h"
#include "motley/cli/context/context.h"
#include "motley/control/survey/local_workers.h"

namespace motley::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

struct Outcome {
  int code;
  std::string out, err;
};

Outcome call(std::vector<std::string> arguments) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  control::LocalWorkers workers("/nowhere/motley-worker");
  const control::SystemClock clock;
  const int code =
      run_app(std::move(arguments), {.environment = {{"MOTLEY_PROFILES", "/nowhere/p.db"}},
                                     .workers = &workers,
                                     .clock = &clock});
  return {code, ::testing::internal::GetCapturedStdout(), ::testing::internal::GetCapturedStderr()};
}

TEST(App, HelpListsEveryVerb) {
  const Outcome outcome = call({"--help"});
  EXPECT_EQ(outcome.code, kDone);
  for (const char* verb : {"probe", "doctor", "profile", "plan", "simulate", "run", "verify",
                           "report", "trace", "demo"})
    EXPECT_THAT(outcome.out, HasSubstr(verb));
}

TEST(App, EveryVerbHasHelp) {
  for (const char* verb : {"probe", "doctor", "profile", "plan", "simulate", "run", "verify",
                           "report", "trace", "demo"}) {
    const Outcome outcome = call({verb, "--help"});
    EXPECT_EQ(outcome.code, kDone) << verb;
    EXPECT_THAT(outcome.out, HasSubstr(std::string("Usage: motley ") + verb)) << verb;
    EXPECT_THAT(outcome.out, HasSubstr("--json")) << verb;
  }
}

TEST(App, VersionNamesBothVersions) {
  const Outcome outcome = call({"--version"});
  EXPECT_EQ(outcome.code, kDone);
  EXPECT_THAT(outcome.out, MatchesRegex("motley [0-9]+\\.[0-9]+\\.[0-9]+.*\n"));
}

TEST(App, MistypedVerbAndFlagAreAnswered) {
  Outcome outcome = call({"pln"});
  EXPECT_EQ(outcome.code, kUsage);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("unknown verb 'pln', did you mean 'plan'?"));
  outcome = call({"plan", "--global-bach", "4"});
  EXPECT_EQ(outcome.code, kUsage);
  EXPECT_THAT(outcome.err, HasSubstr("did you mean '--global-batch'?"));
  EXPECT_THAT(call({"plan", "--batch", "4"}).err,
              HasSubstr("unknown flag '--batch', did you mean '--global-batch'?"));
  EXPECT_THAT(call({"plan", "--json", "--optimiser", "adam"}).out,
              HasSubstr("unknown flag '--optimiser'"));
  EXPECT_THAT(call({"plan", "--colour"}).err, HasSubstr("unknown flag '--colour'; motley --help"));
  EXPECT_THAT(call({"plan", "a.motley", "c.toml"}).err,
              HasSubstr("found a.motley c.toml, which no flag takes; motley --help"));
  EXPECT_EQ(call({}).code, kUsage);
}

TEST(App, WordsMayFollowAFlagThatMayBeRepeated) {
  EXPECT_THAT(call({"explain", "--what-if", "-c:0", "--what-if", "batch 4", "plan.json"}).err,
              HasSubstr("[cli.model]"));
}

TEST(App, UnderscoresAreHyphens) {
  EXPECT_THAT(call({"plan", "--global_batch=4"}).err, HasSubstr("[cli.model]"));
}

TEST(App, ErrorsAreJsonWhenAskedFor) {
  const Outcome outcome = call({"plan", "--json"});
  EXPECT_EQ(outcome.code, kUsage);
  const auto json = parse_json(outcome.out, "stdout");
  ASSERT_TRUE(json.has_value()) << outcome.out;
  EXPECT_EQ(json->at("error").at("code"), "cli.model");
}

TEST(App, WhatIsMissingIsNamed) {
  EXPECT_THAT(call({"plan"}).err, HasSubstr("which model?"));
  EXPECT_THAT(call({"plan", "-m", "m.motley"}).err, HasSubstr("which devices?"));
  EXPECT_THAT(call({"plan", "-m", "m.motley", "-C", "c.toml"}).err, HasSubstr("--global-batch"));
  const Outcome outcome =
      call({"plan", "-m", "/nowhere/m.motley", "-C", "c.toml", "--global-batch", "8"});
  EXPECT_EQ(outcome.code, kUsage);
  EXPECT_THAT(outcome.err, StartsWith("motley: /nowhere/m.motley"));
}

TEST(App, ReportOfNoRunIsAnError) {
  const Outcome outcome = call({"report", "/nowhere/run"});
  EXPECT_EQ(outcome.code, kUsage);
  EXPECT_THAT(outcome.err, HasSubstr("/nowhere/run"));
}

TEST(App, DoctorPointsAtTheLineOfABadClusterFile) {
  const std::string path = ::testing::TempDir() + "bad_cluster.toml";
  std::ofstream(path) << "schema = \"motley.cluster/1\"\nnodes = 3\n";
  const Outcome outcome = call({"doctor", "-C", path});
  EXPECT_NE(outcome.code, kDone);
  EXPECT_THAT(outcome.out + outcome.err, HasSubstr(path + ":2: unknown key 'nodes'"));
  EXPECT_THAT(outcome.out + outcome.err, HasSubstr("did you mean 'node'?"));
}

TEST(ExitCodes, FollowTheKindOfError) {
  EXPECT_EQ(exit_code({ErrorKind::kUsage, "a.b", ""}), 2);
  EXPECT_EQ(exit_code({ErrorKind::kRuntime, "a.b", ""}), 1);
  EXPECT_EQ(exit_code({ErrorKind::kInfeasible, "a.b", ""}), 3);
  EXPECT_EQ(exit_code({ErrorKind::kStale, "a.b", ""}), 4);
  EXPECT_EQ(exit_code({ErrorKind::kCheck, "a.b", ""}), 5);
  EXPECT_EQ(exit_code({ErrorKind::kRuntime, "run.interrupted", ""}), 130);
}

}  // namespace
}  // namespace motley::cli
