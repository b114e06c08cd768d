#include "motley/run/notices/notice.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <functional>

namespace motley::run {
namespace {

using Text = std::string;
using MaybeNotice = std::optional<Notice>;
using Parser = std::function<Result<MaybeNotice>(const HttpAnswer&)>;

constexpr Seconds kNow{1789719600};  // 2026-09-18T08:20:00Z

Result<MaybeNotice> action_now(const HttpAnswer& answer) { return parse_aws_action(answer, kNow); }
Result<MaybeNotice> events_now(const HttpAnswer& answer) {
  return parse_azure_events(answer, "vm-3", kNow);
}
const std::vector<Parser> kParsers = {action_now, parse_aws_rebalance, parse_gcp_preempted,
                                      parse_gcp_maintenance, events_now};

MaybeNotice notice_in(const Parser& parser, const Text& body, int status = 200) {
  const auto notice = parser({status, body});
  EXPECT_TRUE(notice.has_value()) << notice.error().message;
  return notice.value_or(std::nullopt);
}

Text fault_in(const Parser& parser, const Text& body, int status = 200) {
  const auto notice = parser({status, body});
  EXPECT_FALSE(notice.has_value()) << body;
  if (notice) return "";
  EXPECT_EQ(notice.error().kind, ErrorKind::kRuntime);
  EXPECT_EQ(notice.error().code, "run.notice");
  return notice.error().message;
}

TEST(AwsAction, IsNoneWithoutOne) { EXPECT_EQ(notice_in(action_now, "", 404), std::nullopt); }

TEST(AwsAction, LeavesTimeUntilItsTime) {
  const Text at = R"(, "time": "2026-09-18T08:21:30Z"})";
  EXPECT_EQ(notice_in(action_now, R"({"action": "terminate")" + at),
            (Notice{"aws", "terminate at 2026-09-18T08:21:30Z", Seconds(90), true, {}}));
  EXPECT_EQ(notice_in(action_now, R"({"action": "stop")" + at)->left, Seconds(90));
  // Hibernation begins with the notice.
  EXPECT_EQ(notice_in(action_now, R"({"action": "hibernate")" + at)->left, Seconds(0));
  EXPECT_EQ(notice_in(action_now, R"({"action": "stop", "time": "2026-09-18T08:19:59Z"})")->left,
            Seconds(0));
  // Unknown or missing values still give a notice, with the usual warning.
  EXPECT_EQ(notice_in(action_now, R"({"action": "evict\n"})"),
            (Notice{"aws", "evict ", Seconds(120), true, {}}));
}

TEST(AwsAction, WhatIsNoneOfItsAnswersIsQuoted) {
  const Text asked = "aws: spot/instance-action answered ";
  const Text wanted = ", wanted 404, or 200 and an object of 'action' and 'time'";
  EXPECT_EQ(fault_in(action_now, "down\x01\n", 503), asked + "503 'down? '" + wanted);
  for (const Text body :
       {"", "{", "[]", "7", "{}", "null", R"({"action": 3})",
        R"({"action": "stop", "time": "soon"})", R"({"action": "stop", "time": 5})"})
    EXPECT_EQ(fault_in(action_now, body), asked + "200 '" + body + "'" + wanted);
  EXPECT_EQ(fault_in(action_now, Text(81, 'x')), asked + "200 '" + Text(80, 'x') + "...'" + wanted);
}

TEST(AwsRebalance, IsAdvice) {
  EXPECT_EQ(notice_in(parse_aws_rebalance, "", 404), std::nullopt);
  EXPECT_EQ(
      notice_in(parse_aws_rebalance, R"({"noticeTime": "2026-09-18T08:19:00Z"})"),
      (Notice{"aws", "rebalance recommended at 2026-09-18T08:19:00Z", Seconds(120), false, {}}));
  EXPECT_EQ(fault_in(parse_aws_rebalance, R"({"noticeTime": "x"})"),
            "aws: events/recommendations/rebalance answered 200 '{\"noticeTime\": \"x\"}', wanted "
            "404, or 200 and an object of 'noticeTime'");
}

TEST(GcpPreempted, IsAWord) {
  EXPECT_EQ(notice_in(parse_gcp_preempted, "FALSE"), std::nullopt);
  EXPECT_EQ(notice_in(parse_gcp_preempted, "<html>", 404), std::nullopt);
  EXPECT_EQ(notice_in(parse_gcp_preempted, "TRUE\n"),
            (Notice{"gcp", "preempted", Seconds(30), true, {}}));
  const Text wanted = ", wanted 200 and TRUE or FALSE";
  EXPECT_EQ(fault_in(parse_gcp_preempted, "MAYBE"), "gcp: preempted answered 200 'MAYBE'" + wanted);
  EXPECT_EQ(fault_in(parse_gcp_preempted, "TRUE", 403),
            "gcp: preempted answered 403 'TRUE'" + wanted);
}

TEST(GcpMaintenance, EndsOrMigrates) {
  EXPECT_EQ(notice_in(parse_gcp_maintenance, "NONE"), std::nullopt);
  EXPECT_EQ(notice_in(parse_gcp_maintenance, "", 404), std::nullopt);
  EXPECT_EQ(notice_in(parse_gcp_maintenance, "TERMINATE_ON_HOST_MAINTENANCE"),
            (Notice{"gcp", "maintenance ends it", Seconds(60), true, {}}));
  EXPECT_EQ(notice_in(parse_gcp_maintenance, "MIGRATE_ON_HOST_MAINTENANCE"),
            (Notice{"gcp", "maintenance migrates it", Seconds(60), false, {}}));
  EXPECT_EQ(fault_in(parse_gcp_maintenance, "TRUE"),
            "gcp: maintenance-event answered 200 'TRUE', wanted 200 and NONE, "
            "MIGRATE_ON_HOST_MAINTENANCE or TERMINATE_ON_HOST_MAINTENANCE");
  EXPECT_TRUE(fault_in(parse_gcp_maintenance, "NONE", 500).starts_with("gcp: "));
}

Text event_of(const Text& id, const Text& type, const Text& machines, const Text& not_before) {
  return R"({"EventId": ")" + id + R"(", "EventType": ")" + type +
         R"(", "ResourceType": "VirtualMachine", "Resources": [)" + machines +
         R"(], "EventStatus": "Scheduled", "NotBefore": ")" + not_before +
         R"(", "Description": "", "EventSource": "Platform", "DurationInSeconds": -1})";
}
Text document_of(const Text& events) {
  return R"({"DocumentIncarnation": 2, "Events": [)" + events + "]}";
}
Text minutes_later(const Text& minutes) { return "Fri, 18 Sep 2026 08:" + minutes + ":00 GMT"; }

TEST(AzureEvents, AreTheMachinesOwn) {
  EXPECT_EQ(notice_in(events_now, document_of("")), std::nullopt);
  const Text other = event_of("e", "Preempt", R"("vm-2", "vm-4")", minutes_later("21"));
  EXPECT_EQ(notice_in(events_now, document_of(other)), std::nullopt);
  const Text own = event_of("e", "Preempt", R"("vm-2", "VM-3")", minutes_later("22"));
  const Notice notice{"azure", "Preempt (event e)", Seconds(120), true, {}};
  EXPECT_EQ(notice_in(events_now, document_of(other + "," + own)), notice);
  // Without a name it concerns any machine.
  EXPECT_EQ(parse_azure_events({200, document_of(other)}, "", kNow).value()->left, Seconds(60));
}

TEST(AzureEvents, TheNearestEndComesFirst) {
  const Text own = R"("vm-3")";
  const Text freeze = event_of("f", "Freeze", own, "");
  const Text reboot = event_of("r", "Reboot", own, minutes_later("50"));
  const Text redeploy = event_of("d", "Redeploy", own, minutes_later("40"));
  EXPECT_EQ(notice_in(events_now, document_of(freeze)),
            (Notice{"azure", "Freeze (event f)", Seconds(0), false, {}}));
  EXPECT_EQ(notice_in(events_now, document_of(freeze + "," + reboot + "," + redeploy)),
            (Notice{"azure", "Redeploy (event d)", Seconds(1200), true, {}}));
  // An event that has begun leaves no time.
  EXPECT_EQ(notice_in(events_now, document_of(event_of("t", "Terminate", own, "")))->left,
            Seconds(0));
  EXPECT_FALSE(notice_in(events_now, document_of(event_of("u", "Melt", own, "")))->is_certain);
}

TEST(AzureEvents, WhatLacksSomethingIsQuoted) {
  const Text asked = "azure: scheduledevents answered ";
  const Text wanted =
      ", wanted 200 and 'Events', each of 'EventId', 'EventType', 'Resources' and 'NotBefore'";
  for (const Text body : {"", "[]", "{}", R"({"Events": 1})", R"({"Events": [1]})",
                          R"({"Events": [{"Resources": [1]}]})",
                          R"({"Events": [{"Resources": ["vm-3"], "EventId": "e"}]})"})
    EXPECT_EQ(fault_in(events_now, body), asked + "200 '" + body + "'" + wanted);
  EXPECT_EQ(fault_in(events_now, "", 404), asked + "404 ''" + wanted);
  EXPECT_TRUE(fault_in(events_now, document_of(event_of("e", "Preempt", R"("vm-3")", "soon")))
                  .ends_with(wanted));
}

TEST(NoticeFile, ItsTextSaysWhatItSays) {
  EXPECT_EQ(parse_notice_file("", "/n"), (Notice{"file", "/n", Seconds(30), true, {}}));
  EXPECT_EQ(parse_notice_file("12.5\n", "/n"),
            (Notice{"file", "/n: 12.5", Seconds(12.5), true, {}}));
  EXPECT_EQ(parse_notice_file("2min", "/n").left, Seconds(120));
  EXPECT_EQ(
      parse_notice_file("d:1 c-2:0\t5 a fan:stuck :1 d:", "/n"),
      (Notice{"file", "/n: d:1 c-2:0 5 a fan:stuck :1 d:", Seconds(5), true, {"d:1", "c-2:0"}}));
  // The first number counts; a negative one is a word.
  EXPECT_EQ(parse_notice_file("-1 7 8", "/n").left, Seconds(7));
  EXPECT_TRUE(parse_notice_file("7", "/n").is_whole_machine());
  EXPECT_FALSE(parse_notice_file("d:1", "/n").is_whole_machine());
}

TEST(NoticeIdentity, IsAllButTheTime) {
  const Notice one{"aws", "stop", Seconds(5), true, {}};
  Notice other = one;
  other.left = Seconds(4);
  EXPECT_TRUE(one.is_same(other));
  other.what = "terminate";
  EXPECT_FALSE(one.is_same(other));
}

/// Bytes that resemble answers get further than random ones.
rc::Gen<Text> drawn_body() {
  static const std::vector<Text> kBodies = {
      "", "TRUE", R"({"action": "stop", "time": "2026-09-18T08:21:30Z"})",
      R"({"noticeTime": "2026-09-18T08:19:00Z"})",
      document_of(event_of("e", "Preempt", R"("vm-3")", minutes_later("22")))};
  return rc::gen::exec([] {
    Text body = *rc::gen::elementOf(kBodies);
    const auto bytes = *rc::gen::arbitrary<Text>();
    const auto at = *rc::gen::inRange<std::size_t>(0, body.size() + 1);
    const auto gone = *rc::gen::inRange<std::size_t>(0, 4);
    return body.replace(at, gone, bytes);
  });
}

RC_GTEST_PROP(NoticeParsers, ReadAnyBytesOrRefuseThem, ()) {
  const HttpAnswer answer{*rc::gen::element(200, 404, 401, 500), *drawn_body()};
  for (const Parser& parser : kParsers) {
    const auto notice = parser(answer);
    if (!notice) {
      RC_ASSERT(notice.error().code == "run.notice");
      RC_ASSERT(notice.error().message.find(" answered ") != Text::npos);
    } else if (*notice) {
      RC_ASSERT(answer.status == 200);
      RC_ASSERT((*notice)->left >= Seconds(0));
      RC_ASSERT((*notice)->what.find_first_of("\n\r") == Text::npos);
    }
  }
}

RC_GTEST_PROP(NoticeParsers, AnyFileIsANotice, (const Text& text)) {
  const Notice notice = parse_notice_file(text, "/n");
  RC_ASSERT(notice.left >= Seconds(0));
  RC_ASSERT(notice.left.value < 1e300 * 1e10);
  RC_ASSERT(notice.what.starts_with("/n"));
}

}  // namespace
}  // namespace motley::run
