#include "motley/run/notices/notice_source.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "motley/testing/replay_server.h"

namespace motley::run {
namespace {

using Text = std::string;
using MaybeNotice = std::optional<Notice>;

constexpr Seconds kReplayed{1789719600};  // 2026-09-18T08:20:00Z

/// Answers by "METHOD PATH", else with 404. The source under test is the only client, so answers
/// may change between two polls.
class Replay {
 public:
  Text place() const { return server_.place(); }
  std::vector<Text> requests() const { return server_.requests(); }
  std::map<Text, Text> answers;

 private:
  ReplayServer server_{[this](const Text& request) {
    const auto found = answers.find(request.substr(0, request.find(" HTTP/")));
    return found == answers.end() ? ReplayServer::text_of(404, "no") : found->second;
  }};
};

std::unique_ptr<NoticeSource> source_of(const Text& text) {
  return make_notice_source(text, {.now = [] { return kReplayed; }}).value();
}

MaybeNotice seen(NoticeSource& source) {
  auto notice = source.look(-1);
  EXPECT_TRUE(notice.has_value()) << notice.error().message;
  return notice.value_or(std::nullopt);
}

Text source_fault(const Text& text) {
  const auto source = make_notice_source(text);
  EXPECT_FALSE(source.has_value());
  if (source) return "";
  EXPECT_EQ(source.error().kind, ErrorKind::kUsage);
  EXPECT_EQ(source.error().code, "run.notice");
  return source.error().message;
}

TEST(NoticeSource, AwsIsAskedWithAToken) {
  Replay replay;
  replay.answers["PUT /latest/api/token"] = ReplayServer::text_of(200, "AQAEAL==");
  const auto source = source_of("aws@" + replay.place());
  EXPECT_EQ(source->every(), Seconds(5));
  EXPECT_EQ(seen(*source), std::nullopt);
  const auto requests = replay.requests();
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_NE(requests[0].find("\r\nX-aws-ec2-metadata-token-ttl-seconds: 21600\r\n"), Text::npos);
  for (const Text& request : {requests[1], requests[2]})
    EXPECT_NE(request.find("\r\nX-aws-ec2-metadata-token: AQAEAL==\r\n"), Text::npos) << request;

  replay.answers["GET /latest/meta-data/events/recommendations/rebalance"] =
      ReplayServer::text_of(200, R"({"noticeTime": "2026-09-18T08:19:00Z"})");
  EXPECT_EQ(
      seen(*source),
      (Notice{"aws", "rebalance recommended at 2026-09-18T08:19:00Z", Seconds(120), false, {}}));
  replay.answers["GET /latest/meta-data/spot/instance-action"] =
      ReplayServer::text_of(200, R"({"action": "terminate", "time": "2026-09-18T08:22:00Z"})");
  EXPECT_EQ(seen(*source),
            (Notice{"aws", "terminate at 2026-09-18T08:22:00Z", Seconds(120), true, {}}));
  // The token was requested once; a certain end makes advice unnecessary.
  EXPECT_EQ(replay.requests().size(), 6U);
}

TEST(NoticeSource, AwsTokensEndAndOldServersHaveNone) {
  Replay replay;
  const auto source = source_of("aws@" + replay.place());
  EXPECT_EQ(seen(*source), std::nullopt);
  EXPECT_EQ(replay.requests()[1].find("token"), Text::npos);
  replay.answers["GET /latest/meta-data/spot/instance-action"] = ReplayServer::text_of(401, "");
  const auto refused = source->look(-1);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message,
            "aws: spot/instance-action answered 401 '', wanted 404, or 200 and an object of "
            "'action' and 'time'");
  const auto requests = replay.requests();
  ASSERT_EQ(requests.size(), 6U);  // and again with another token
  EXPECT_TRUE(requests[4].starts_with("PUT /latest/api/token "));
}

TEST(NoticeSource, ATokenThatIsNoneGoesIntoNoHeader) {
  Replay replay;
  replay.answers["PUT /latest/api/token"] = ReplayServer::text_of(200, "a\r\nEvil: b");
  EXPECT_EQ(seen(*source_of("aws@" + replay.place())), std::nullopt);
  EXPECT_EQ(replay.requests()[1].find("Evil"), Text::npos);
}

TEST(NoticeSource, Gcp) {
  Replay replay;
  const Text instance = "GET /computeMetadata/v1/instance/";
  replay.answers[instance + "preempted"] = ReplayServer::text_of(200, "FALSE");
  replay.answers[instance + "maintenance-event"] = ReplayServer::text_of(200, "NONE");
  const auto source = source_of("gcp@" + replay.place());
  EXPECT_EQ(seen(*source), std::nullopt);
  EXPECT_NE(replay.requests()[0].find("\r\nMetadata-Flavor: Google\r\n"), Text::npos);
  replay.answers[instance + "maintenance-event"] =
      ReplayServer::text_of(200, "TERMINATE_ON_HOST_MAINTENANCE");
  EXPECT_EQ(seen(*source), (Notice{"gcp", "maintenance ends it", Seconds(60), true, {}}));
  replay.answers[instance + "preempted"] = ReplayServer::text_of(200, "TRUE");
  EXPECT_EQ(seen(*source), (Notice{"gcp", "preempted", Seconds(30), true, {}}));
}

TEST(NoticeSource, AzureHearsOnlyOfTheMachineThatItIs) {
  Replay replay;
  replay.answers["GET /metadata/instance/compute/name?api-version=2021-02-01&format=text"] =
      ReplayServer::text_of(200, "set_3");
  const auto events = [](const Text& machine) {
    return ReplayServer::text_of(200, R"({"DocumentIncarnation": 1, "Events": [{"EventId": "e-1",
        "EventType": "Preempt", "Resources": [")" +
                                          machine + R"("], "EventStatus": "Scheduled",
        "NotBefore": "Fri, 18 Sep 2026 08:20:30 GMT"}]})");
  };
  Text& answer = replay.answers["GET /metadata/scheduledevents?api-version=2020-07-01"];
  answer = events("set_2");
  const auto source = source_of("azure@" + replay.place());
  EXPECT_EQ(seen(*source), std::nullopt);
  EXPECT_NE(replay.requests()[1].find("\r\nMetadata: true\r\n"), Text::npos);
  answer = events("SET_3");
  EXPECT_EQ(seen(*source), (Notice{"azure", "Preempt (event e-1)", Seconds(30), true, {}}));
  EXPECT_EQ(replay.requests().size(), 3U);  // the name once
}

TEST(NoticeSource, AServerThatIsNotThereIsNamed) {
  const auto notice = source_of("gcp@127.0.0.1:1")->look(-1);
  ASSERT_FALSE(notice.has_value());
  EXPECT_EQ(notice.error().message, "gcp: 127.0.0.1 port 1: Connection refused");
}

TEST(NoticeSource, SignalsAreTold) {
  const auto slurm = source_of("slurm:60");
  EXPECT_EQ(slurm->describe(), "slurm by SIGTERM or SIGUSR1");
  EXPECT_EQ(slurm->signals(), (std::vector{SIGTERM, SIGUSR1}));
  EXPECT_EQ(seen(*slurm), std::nullopt);
  EXPECT_FALSE(slurm->note_signal(SIGINT));
  EXPECT_EQ(seen(*slurm), std::nullopt);
  EXPECT_TRUE(slurm->note_signal(SIGUSR1));
  const MaybeNotice first = seen(*slurm);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->source, "slurm");
  EXPECT_LE(first->left, Seconds(60));
  EXPECT_GT(first->left, Seconds(30));
  // A second signal does not restart the time.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_TRUE(slurm->note_signal(SIGTERM));
  const MaybeNotice second = seen(*slurm);
  EXPECT_TRUE(second->is_same(*first));
  EXPECT_LT(second->left, first->left - Seconds(0.019));

  const auto kubernetes = source_of("kubernetes");
  EXPECT_EQ(kubernetes->describe(), "kubernetes by SIGTERM");
  EXPECT_FALSE(kubernetes->note_signal(SIGUSR1));
  EXPECT_TRUE(kubernetes->note_signal(SIGTERM));
  EXPECT_LE(seen(*kubernetes)->left, Seconds(30));
  EXPECT_FALSE(source_of("aws")->note_signal(SIGTERM));
}

TEST(NoticeSource, AFileIsANoticeWhileItIsThere) {
  const Text path = ::testing::TempDir() + "motley-notice-" + std::to_string(::getpid());
  std::filesystem::remove(path);
  const auto source = source_of("file:" + path);
  EXPECT_EQ(seen(*source), std::nullopt);
  std::ofstream(path) << "45 a:1\n";
  EXPECT_EQ(seen(*source),
            (Notice{"file", print_excerpt(path + ": 45 a:1"), Seconds(45), true, {"a:1"}}));
  std::filesystem::remove(path);
  EXPECT_EQ(seen(*source), std::nullopt);
  // An empty file may be about to be written.
  std::ofstream{path};
  EXPECT_EQ(seen(*source), std::nullopt);
  EXPECT_EQ(seen(*source), (Notice{"file", print_excerpt(path), Seconds(30), true, {}}));
  std::filesystem::remove(path);
}

TEST(NoticeSource, WhatIsNoSourceIsSaid) {
  const Text known =
      "; known are aws, gcp, azure (with @HOST:PORT: another metadata server), slurm, kubernetes "
      "(with :SECONDS: another warning), file:PATH";
  EXPECT_EQ(source_fault("awss"), "unknown source of notices 'awss', did you mean 'aws'?" + known);
  EXPECT_EQ(source_fault("kubernets@x"),
            "unknown source of notices 'kubernets@x', did you mean 'kubernetes'?" + known);
  EXPECT_EQ(source_fault(""), "unknown source of notices ''" + known);
  EXPECT_EQ(source_fault("/tmp/notice"), "unknown source of notices '/tmp/notice'" + known);
  EXPECT_EQ(source_fault("file:"), "source of notices 'file:': wanted a path, file:PATH" + known);
  for (const Text rest : {":80", "@", "@:80", "@h:", "@h:0", "@h:65536", "@h:1:2", "@h x", "@h/"})
    EXPECT_EQ(source_fault("aws" + rest), "source of notices 'aws" + rest + "': found '" + rest +
                                              "', wanted @HOST or @HOST:PORT after 'aws'" + known);
  for (const Text rest : {":", ":x", ":-1", "@h"})
    EXPECT_EQ(source_fault("slurm" + rest),
              "source of notices 'slurm" + rest + "': found '" + rest +
                  "', wanted a time such as :60 after 'slurm'" + known);
}

TEST(NoticeSource, ThePlaceIsTheirsUnlessSaid) {
  EXPECT_EQ(source_of("azure")->describe(), "azure at 169.254.169.254 port 80");
  EXPECT_EQ(source_of("gcp@meta")->describe(), "gcp at meta port 80");
  EXPECT_EQ(source_of("aws@10.0.0.1:81")->describe(), "aws at 10.0.0.1 port 81");
}

}  // namespace
}  // namespace motley::run
