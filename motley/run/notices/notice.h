#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/run/notices/http_answer.h"

namespace motley::run {

/// A warning that this machine, or some of its devices, will be gone. Two notices that differ only
/// in `left` are the same one, seen again: `what` never contains a time that changes.
struct Notice {
  std::string source;  ///< "aws", "gcp", "azure", "slurm", "kubernetes" or "file"
  std::string what;    ///< printable, for people: "terminate at 2026-09-18T08:22:00Z"
  Seconds left{0};     ///< time until it is gone, as reported or as usual for the source
  /// False: advice; it may be gone (rebalance), or pauses for seconds and stays (migration).
  bool is_certain = true;
  std::vector<std::string> devices;  ///< in the cluster file ("a:1"); none: all of this machine
  bool is_whole_machine() const { return devices.empty(); }
  bool is_same(const Notice& other) const {
    return source == other.source && what == other.what && devices == other.devices;
  }
  bool operator==(const Notice&) const = default;
};

// The usual warning time of each source, for answers that do not contain one.
inline constexpr Seconds kAwsWarning{120};
inline constexpr Seconds kGcpWarning{30};
inline constexpr Seconds kGcpMaintenanceWarning{60};  // at least; an hour on machines with GPUs
inline constexpr Seconds kSlurmWarning{30};           // KillWait unless the site sets another
inline constexpr Seconds kKubernetesWarning{30};      // terminationGracePeriodSeconds
inline constexpr Seconds kFileWarning{30};

// Parsers of metadata servers' answers; empty: no notice. `now`: seconds since 1970, UTC. Pure. Any
// bytes give a notice, none or a runtime error `run.notice` with source, request and answer.

/// Parses AWS, meta-data/spot/instance-action: 404, or an object with "action" (terminate, stop,
/// hibernate) and "time". Hibernation begins with the notice: no time is left.
Result<std::optional<Notice>> parse_aws_action(const HttpAnswer& answer, Seconds now);
/// Parses AWS, meta-data/events/recommendations/rebalance: 404, or "noticeTime". Advice.
Result<std::optional<Notice>> parse_aws_rebalance(const HttpAnswer& answer);
/// Parses GCP, instance/preempted: TRUE or FALSE. 404 counts as none.
Result<std::optional<Notice>> parse_gcp_preempted(const HttpAnswer& answer);
/// Parses GCP, instance/maintenance-event: NONE or 404, TERMINATE_ON_HOST_MAINTENANCE or, as
/// advice, MIGRATE_ON_HOST_MAINTENANCE.
Result<std::optional<Notice>> parse_gcp_maintenance(const HttpAnswer& answer);
/// Parses Azure, metadata/scheduledevents. Of events whose "Resources" contain `machine` (ignoring
/// case; "": all events) returns the certain one with the least time left, else advice. Preempt,
/// Terminate, Reboot and Redeploy are certain, all others advice. Empty "NotBefore": it has begun.
Result<std::optional<Notice>> parse_azure_events(const HttpAnswer& answer, std::string_view machine,
                                                 Seconds now);

/// Parses a notice file, whose existence is the notice. In its text a number, with or without a
/// unit ("45", "2min"), is the time left, NODE:INDEX is a device, and the rest is a reason for
/// people. Any text is a notice, because ignoring one costs more.
Notice parse_notice_file(std::string_view text, const std::string& path);

/// Returns the printable ASCII of a text, at most 80 characters, for messages.
std::string print_excerpt(std::string_view text);

}  // namespace motley::run
