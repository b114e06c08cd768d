#include "motley/cluster/host_limits.h"

#include <fmt/format.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string_view>

#include "motley/base/text.h"

namespace motley::cluster {
namespace {

constexpr std::string_view kMount = "/sys/fs/cgroup";

struct ControlGroup {
  std::set<std::string> controllers;  ///< of v1; empty for v2
  std::string path;                   ///< "/user.slice/x", "/" at the root
};

// Parses lines of /proc/self/cgroup: "0::/path" is v2, "4:cpu,cpuacct:/path" v1.
std::vector<ControlGroup> parse_control_groups(std::string_view text) {
  std::vector<ControlGroup> groups;
  for (const std::string_view line : split(text, '\n')) {
    const std::size_t first = line.find(':');
    if (first == std::string_view::npos) continue;
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    ControlGroup group;
    group.path = std::string(line.substr(second + 1));
    const std::string_view names = line.substr(first + 1, second - first - 1);
    if (!names.empty()) {
      for (const std::string_view name : split(names, ',')) group.controllers.emplace(name);
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

// Returns "/a/b", "/a", "" for "/a/b": the group and those above it, the mount's root last.
std::vector<std::string> upwards(std::string path) {
  std::vector<std::string> paths;
  while (!path.empty() && path != "/") {
    paths.push_back(path);
    path = path.substr(0, path.rfind('/'));
  }
  paths.emplace_back();
  return paths;
}

class Finder {
 public:
  explicit Finder(const ReadHostFile& read) : read_(read) {}

  HostLimits run() {
    read_installed_memory();
    for (const ControlGroup& group : parse_control_groups(text("/proc/self/cgroup"))) {
      for (const std::string& path : upwards(group.path)) {
        if (group.controllers.empty()) {
          read_version_2(std::string(kMount) + path);
          read_version_2(fmt::format("{}/unified{}", kMount, path));
        }
        if (group.controllers.count("cpu") != 0) {
          read_version_1_cpu(fmt::format("{}/cpu{}", kMount, path));
          read_version_1_cpu(fmt::format("{}/cpu,cpuacct{}", kMount, path));
        }
        if (group.controllers.count("memory") != 0) {
          limit_memory(fmt::format("{}/memory{}/memory.limit_in_bytes", kMount, path));
        }
      }
    }
    return std::move(limits_);
  }

 private:
  std::string text(const std::string& path) const { return read_(path).value_or(""); }

  std::optional<std::int64_t> integer(const std::string& path) const {
    const std::optional<std::string> content = read_(path);
    return content ? find_integer(trim(*content)) : std::nullopt;
  }

  void read_installed_memory() {
    const std::string content = text("/proc/meminfo");
    for (const std::string_view line : split(content, '\n')) {
      if (line.substr(0, 9) != "MemTotal:") continue;
      const std::string_view number = trim(line.substr(9));  // "8048300 kB"
      const auto kilobytes = find_integer(number.substr(0, number.find(' ')));
      if (!kilobytes || *kilobytes <= 0 || *kilobytes > (std::int64_t{1} << 50)) continue;
      limits_.memory = Bytes(*kilobytes * 1024);
      limits_.notes.push_back(fmt::format("memory: {} installed", format_bytes(*limits_.memory)));
    }
  }

  // Reads "cpu.max", which holds "50000 100000" or "max 100000".
  void read_version_2(const std::string& folder) {
    const std::string path = folder + "/cpu.max";
    const std::string content = text(path);
    const std::vector<std::string_view> parts = split(trim(content), ' ');
    if (parts.size() == 2) limit_cpu(find_integer(parts[0]), find_integer(parts[1]), path);
    limit_memory(folder + "/memory.max");
  }

  void read_version_1_cpu(const std::string& folder) {
    const std::string path = folder + "/cpu.cfs_quota_us";
    limit_cpu(integer(path), integer(folder + "/cpu.cfs_period_us"), path);
  }

  void limit_cpu(std::optional<std::int64_t> quota, std::optional<std::int64_t> period,
                 const std::string& path) {
    if (!quota || !period || *quota <= 0 || *period <= 0) return;
    const double cores = static_cast<double>(*quota) / static_cast<double>(*period);
    if (limits_.cpu_quota && *limits_.cpu_quota <= cores) return;
    limits_.cpu_quota = cores;
    limits_.notes.push_back(fmt::format("cpu: at most {} cores by {}", print_float(cores), path));
  }

  void limit_memory(const std::string& path) {
    const std::optional<std::int64_t> bytes = integer(path);
    if (!bytes || *bytes <= 0) return;
    if (limits_.memory && limits_.memory->value <= *bytes) return;
    if (*bytes >= (std::int64_t{1} << 60)) return;  // version 1 writes "no limit" this way
    limits_.memory = Bytes(*bytes);
    limits_.notes.push_back(
        fmt::format("memory: at most {} by {}", format_bytes(Bytes(*bytes)), path));
  }

  const ReadHostFile& read_;
  HostLimits limits_;
};

}  // namespace

// Reads control files as streams, since they report no size.
std::optional<std::string> read_host_file(const std::string& path) {
  std::ifstream stream(path);
  if (!stream) return std::nullopt;
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

HostLimits find_host_limits(const ReadHostFile& read) { return Finder(read).run(); }

}  // namespace motley::cluster
