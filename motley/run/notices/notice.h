#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/run/notices/http_answer.h"

namespace motley::run {

/// Somebody says that this machine, or devices of it, will be gone. Two that are equal but for
/// `left` are the same one, asked for again: `what` never tells times that change.
struct Notice {
  std::string source;  ///< "aws", "gcp", "azure", "slurm", "kubernetes" or "file"
  std::string what;    ///< for people: "terminate at 2026-09-18T08:22:00Z"; printable
  Seconds left{0};     ///< until it is gone; what the source says, or what it usually gives
  /// It will be gone. Else advice: it may be gone (a rebalance recommendation), or stands still for
  /// some seconds and stays (a migration).
  bool is_certain = true;
  std::vector<std::string> devices;  ///< which of the cluster file's ("a:1"); none: all of here
  bool is_whole_machine() const { return devices.empty(); }
  bool is_same(const Notice& other) const {
    return source == other.source && what == other.what && devices == other.devices;
  }
  bool operator==(const Notice&) const = default;
};

// How long a source's warning usually is, where its answer says nothing.
inline constexpr Seconds kAwsWarning{120};
inline constexpr Seconds kGcpWarning{30};
inline constexpr Seconds kGcpMaintenanceWarning{60};  // at least; an hour on machines with GPUs
inline constexpr Seconds kSlurmWarning{30};           // KillWait unless the site sets another
inline constexpr Seconds kKubernetesWarning{30};      // terminationGracePeriodSeconds
inline constexpr Seconds kFileWarning{30};

// What the answers of metadata servers say; empty: nothing stands. `now`: seconds since 1970 in
// UTC. Pure; any bytes give a notice, none or a runtime error `run.notice`, which names the source
// and what was asked for, and quotes the answer.

/// AWS, meta-data/spot/instance-action: 404, or an object of "action" (terminate, stop, hibernate)
/// and "time". Hibernation begins with the notice: nothing is left.
Result<std::optional<Notice>> parse_aws_action(const HttpAnswer& answer, Seconds now);
/// AWS, meta-data/events/recommendations/rebalance: 404, or an object of "noticeTime". Advice: the
/// machine's risk has risen.
Result<std::optional<Notice>> parse_aws_rebalance(const HttpAnswer& answer);
/// GCP, instance/preempted: TRUE or FALSE. 404 is none, too.
Result<std::optional<Notice>> parse_gcp_preempted(const HttpAnswer& answer);
/// GCP, instance/maintenance-event: NONE, TERMINATE_ON_HOST_MAINTENANCE or, advice,
/// MIGRATE_ON_HOST_MAINTENANCE. 404 is none, too.
Result<std::optional<Notice>> parse_gcp_maintenance(const HttpAnswer& answer);
/// Azure, metadata/scheduledevents: of the events whose "Resources" hold `machine` (in whatever
/// case; "": of all events) the certain one with the least time left; without one, advice. Freeze
/// is advice, and so is a kind that is not known; Preempt, Terminate, Reboot and Redeploy are
/// certain. An empty "NotBefore": it has begun.
Result<std::optional<Notice>> parse_azure_events(const HttpAnswer& answer, std::string_view machine,
                                                 Seconds now);

/// What a file says by being there. In its text a number, with a unit or without ("45", "2min"), is
/// the time left, NODE:INDEX a device, and the rest a reason for people. Any text is a notice: not
/// leaving costs more.
Notice parse_notice_file(std::string_view text, const std::string& path);

/// Printable ASCII of a text, at most 80 characters, for messages.
std::string print_excerpt(std::string_view text);

}  // namespace motley::run
