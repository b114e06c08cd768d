#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "motley/base/units.h"

namespace motley::cluster {

/// Reads a whole file of the host by absolute path, or a fake one in tests; empty if unreadable.
using ReadHostFile = std::function<std::optional<std::string>(const std::string& path)>;

std::optional<std::string> read_host_file(const std::string& path);

/// The resources that this process may use on its host.
struct HostLimits {
  std::optional<double> cpu_quota;  ///< cores by cgroup quota: the smallest up to the root
  std::optional<Bytes> memory;      ///< least of installed memory and cgroup limits
  std::vector<std::string> notes;   ///< where each limit comes from
};

/// Reads /proc/self/cgroup, /proc/meminfo and the control files of cgroup v2 (cpu.max, memory.max)
/// and v1 (cpu.cfs_quota_us, memory.limit_in_bytes) below the usual mount points. A path that a
/// container hides is looked up at the mount's root. Missing files limit nothing.
HostLimits find_host_limits(const ReadHostFile& read);

}  // namespace motley::cluster
