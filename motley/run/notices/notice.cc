#include "motley/run/notices/notice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "motley/base/json.h"
#include "motley/base/text.h"
#include "motley/run/notices/utc_time.h"

namespace motley::run {
namespace {

using MaybeNotice = std::optional<Notice>;

/// What was requested: "aws: spot/instance-action".
struct Asked {
  std::string source, item;
  std::string name() const { return source + ": " + item; }
};

tl::unexpected<Error> bad_answer(const Asked& asked, const HttpAnswer& answer,
                                 const std::string& wanted) {
  return runtime_error("run.notice",
                       fmt::format("{} answered {} '{}', wanted {}", asked.name(), answer.status,
                                   print_excerpt(answer.body), wanted));
}

/// Returns the JSON of a 200 answer; null: 404.
Result<Json> read_object(const Asked& asked, const HttpAnswer& answer, const std::string& wanted) {
  if (answer.status == 404) return Json();
  if (answer.status != 200) return bad_answer(asked, answer, wanted);
  auto json = parse_json(answer.body, asked.item);
  if (!json || !json->is_object()) return bad_answer(asked, answer, wanted);
  return std::move(*json);
}

std::optional<std::string> find_text(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) return std::nullopt;
  return found->get<std::string>();
}

Seconds until(Seconds time, Seconds now) { return std::max(time - now, Seconds(0)); }

std::string_view word_of(const HttpAnswer& answer) {
  return answer.status == 404 ? "NONE" : trim(answer.body);
}

bool is_equal_in_any_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

/// Tells whether an Azure event concerns the machine. Empty: it names no resources.
std::optional<bool> concerns(const Json& event, std::string_view machine) {
  const auto resources = event.find("Resources");
  if (resources == event.end() || !resources->is_array()) return std::nullopt;
  bool is_meant = machine.empty();
  for (const Json& resource : *resources) {
    if (!resource.is_string()) return std::nullopt;
    is_meant |= is_equal_in_any_case(resource.get<std::string>(), machine);
  }
  return is_meant;
}

/// Returns an event's notice. Empty: the event lacks a member.
MaybeNotice notice_of_event(const Json& event, Seconds now) {
  const auto type = find_text(event, "EventType"), id = find_text(event, "EventId");
  const auto not_before = find_text(event, "NotBefore");
  if (!type || !id || !not_before) return std::nullopt;
  const auto time = not_before->empty() ? now : find_utc_time(*not_before);
  if (!time) return std::nullopt;
  const bool is_end =
      *type == "Preempt" || *type == "Terminate" || *type == "Reboot" || *type == "Redeploy";
  return Notice{.source = "azure",
                .what = fmt::format("{} (event {})", print_excerpt(*type), print_excerpt(*id)),
                .left = until(*time, now),
                .is_certain = is_end,
                .devices = {}};
}

bool is_device_name(std::string_view word) {
  const std::size_t colon = word.rfind(':');
  return colon != std::string_view::npos && colon > 0 && colon + 1 < word.size() &&
         word.find_first_not_of("0123456789", colon + 1) == std::string_view::npos;
}

}  // namespace

std::string print_excerpt(std::string_view text) {
  constexpr std::size_t kMost = 80;
  const std::string_view begin = text.substr(0, kMost);
  std::string copy(begin);
  for (char& c : copy)
    if (c < ' ' || c > '~') c = c == '\n' || c == '\r' || c == '\t' ? ' ' : '?';
  return text.size() > kMost ? copy + "..." : copy;
}

Result<MaybeNotice> parse_aws_action(const HttpAnswer& answer, Seconds now) {
  const Asked asked{"aws", "spot/instance-action"};
  const std::string wanted = "404, or 200 and an object of 'action' and 'time'";
  MOTLEY_ASSIGN(const Json json, read_object(asked, answer, wanted));
  if (json.is_null()) return MaybeNotice();
  const auto action = find_text(json, "action"), time = find_text(json, "time");
  const auto at = time ? find_utc_time(*time) : std::nullopt;
  if (!action || (json.contains("time") && !at)) return bad_answer(asked, answer, wanted);
  Notice notice{
      .source = "aws", .what = print_excerpt(*action), .left = kAwsWarning, .devices = {}};
  if (at) notice.what += " at " + *time;
  if (at) notice.left = until(*at, now);
  if (*action == "hibernate") notice.left = Seconds(0);
  return MaybeNotice(std::move(notice));
}

Result<MaybeNotice> parse_aws_rebalance(const HttpAnswer& answer) {
  const Asked asked{"aws", "events/recommendations/rebalance"};
  const std::string wanted = "404, or 200 and an object of 'noticeTime'";
  MOTLEY_ASSIGN(const Json json, read_object(asked, answer, wanted));
  if (json.is_null()) return MaybeNotice();
  const auto time = find_text(json, "noticeTime");
  if (!time || !find_utc_time(*time)) return bad_answer(asked, answer, wanted);
  return MaybeNotice(Notice{.source = "aws",
                            .what = "rebalance recommended at " + *time,
                            .left = kAwsWarning,
                            .is_certain = false,
                            .devices = {}});
}

Result<MaybeNotice> parse_gcp_preempted(const HttpAnswer& answer) {
  const std::string_view word = word_of(answer);
  if (answer.status != 200 && answer.status != 404)
    return bad_answer({"gcp", "preempted"}, answer, "200 and TRUE or FALSE");
  if (word == "FALSE" || word == "NONE") return MaybeNotice();
  if (word != "TRUE") return bad_answer({"gcp", "preempted"}, answer, "200 and TRUE or FALSE");
  return MaybeNotice(
      Notice{.source = "gcp", .what = "preempted", .left = kGcpWarning, .devices = {}});
}

Result<MaybeNotice> parse_gcp_maintenance(const HttpAnswer& answer) {
  const std::string_view word = word_of(answer);
  const bool is_end = word == "TERMINATE_ON_HOST_MAINTENANCE";
  const bool is_answer = answer.status == 200 || answer.status == 404;
  if (is_answer && word == "NONE") return MaybeNotice();
  if (!is_answer || (!is_end && word != "MIGRATE_ON_HOST_MAINTENANCE"))
    return bad_answer({"gcp", "maintenance-event"}, answer,
                      "200 and NONE, MIGRATE_ON_HOST_MAINTENANCE or TERMINATE_ON_HOST_MAINTENANCE");
  return MaybeNotice(Notice{.source = "gcp",
                            .what = is_end ? "maintenance ends it" : "maintenance migrates it",
                            .left = kGcpMaintenanceWarning,
                            .is_certain = is_end,
                            .devices = {}});
}

Result<MaybeNotice> parse_azure_events(const HttpAnswer& answer, std::string_view machine,
                                       Seconds now) {
  const Asked asked{"azure", "scheduledevents"};
  const std::string wanted =
      "200 and 'Events', each of 'EventId', 'EventType', 'Resources' and 'NotBefore'";
  MOTLEY_ASSIGN(const Json json, read_object(asked, answer, wanted));
  const auto events = json.find("Events");
  if (answer.status != 200 || events == json.end() || !events->is_array())
    return bad_answer(asked, answer, wanted);
  MaybeNotice first;
  for (const Json& event : *events) {
    const auto is_meant = event.is_object() ? concerns(event, machine) : std::nullopt;
    if (!is_meant) return bad_answer(asked, answer, wanted);
    if (!*is_meant) continue;
    MaybeNotice notice = notice_of_event(event, now);
    if (!notice) return bad_answer(asked, answer, wanted);
    const auto urgency = [](const Notice& n) { return std::tuple(!n.is_certain, n.left); };
    if (!first || urgency(*notice) < urgency(*first)) first = std::move(notice);
  }
  return first;
}

Notice parse_notice_file(std::string_view text, const std::string& path) {
  Notice notice{.source = "file", .what = print_excerpt(path), .left = kFileWarning, .devices = {}};
  if (!trim(text).empty()) notice.what += ": " + print_excerpt(trim(text));
  bool has_time = false;
  std::string spaced(text);
  std::replace_if(
      spaced.begin(), spaced.end(), [](unsigned char c) { return std::isspace(c); }, ' ');
  for (const std::string_view word : split(spaced, ' ')) {
    const auto time = parse_seconds(word);
    if (time && !has_time) notice.left = *time;
    has_time |= time.has_value();
    if (is_device_name(word)) notice.devices.emplace_back(word);
  }
  return notice;
}

}  // namespace motley::run
