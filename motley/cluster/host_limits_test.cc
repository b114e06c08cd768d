#include "motley/cluster/host_limits.h"

#include <gtest/gtest.h>

#include <map>

namespace motley::cluster {
namespace {

HostLimits limits_of(const std::map<std::string, std::string>& files) {
  return find_host_limits([&](const std::string& path) -> std::optional<std::string> {
    const auto found = files.find(path);
    return found == files.end() ? std::nullopt : std::optional(found->second);
  });
}

const std::string kMemory = "MemFree: 1 kB\nMemTotal:        8048300 kB\n";

TEST(HostLimits, NothingLimitsWithoutControlGroups) {
  const HostLimits limits = limits_of({{"/proc/meminfo", kMemory}});
  EXPECT_FALSE(limits.cpu_quota);
  EXPECT_EQ(limits.memory, Bytes(8048300 * std::int64_t{1024}));
  EXPECT_EQ(limits.notes, std::vector<std::string>{"memory: 7.68 GiB installed"});
  EXPECT_FALSE(limits_of({}).memory);
}

TEST(HostLimits, ReadsVersion2UpToTheRoot) {
  // The group allows 2 cores, its parent 150000 / 100000 = 1.5; only the parent limits memory.
  const HostLimits limits = limits_of({{"/proc/meminfo", kMemory},
                                       {"/proc/self/cgroup", "0::/jobs/one\n"},
                                       {"/sys/fs/cgroup/jobs/one/cpu.max", "200000 100000\n"},
                                       {"/sys/fs/cgroup/jobs/one/memory.max", "max\n"},
                                       {"/sys/fs/cgroup/jobs/cpu.max", "150000 100000\n"},
                                       {"/sys/fs/cgroup/jobs/memory.max", "1073741824\n"},
                                       {"/sys/fs/cgroup/cpu.max", "max 100000\n"}});
  EXPECT_EQ(limits.cpu_quota, 1.5);
  EXPECT_EQ(limits.memory, Bytes(1 << 30));
  EXPECT_EQ(limits.notes,
            (std::vector<std::string>{"memory: 7.68 GiB installed",
                                      "cpu: at most 2.0 cores by /sys/fs/cgroup/jobs/one/cpu.max",
                                      "cpu: at most 1.5 cores by /sys/fs/cgroup/jobs/cpu.max",
                                      "memory: at most 1 GiB by /sys/fs/cgroup/jobs/memory.max"}));
}

TEST(HostLimits, ReadsVersion1) {
  const HostLimits limits =
      limits_of({{"/proc/meminfo", kMemory},
                 {"/proc/self/cgroup", "4:memory:/m\n2:cpu,cpuacct:/c\n1:name=systemd:/\n0::/\n"},
                 {"/sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_quota_us", "50000\n"},
                 {"/sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_period_us", "100000\n"},
                 {"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"},
                 {"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"},
                 {"/sys/fs/cgroup/memory/m/memory.limit_in_bytes", "536870912\n"},
                 {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"}});
  EXPECT_EQ(limits.cpu_quota, 0.5);
  EXPECT_EQ(limits.memory, Bytes(512 << 20));
}

TEST(HostLimits, LooksAtTheRootForAPathThatAContainerDoesNotShow) {
  const HostLimits limits = limits_of({{"/proc/self/cgroup", "2:cpu:/docker/0123\n0::/x\n"},
                                       {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "300000\n"},
                                       {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"},
                                       {"/sys/fs/cgroup/memory.max", "4096\n"}});
  EXPECT_EQ(limits.cpu_quota, 3.0);
  EXPECT_EQ(limits.memory, Bytes(4096));
}

TEST(HostLimits, IgnoresBrokenFiles) {
  const HostLimits limits = limits_of({{"/proc/meminfo", "MemTotal:\nMemTotal: -3 kB\n"},
                                       {"/proc/self/cgroup", "garbage\n0:\n0::/x\n1:cpu:/\n"},
                                       {"/sys/fs/cgroup/x/cpu.max", "1 0\n"},
                                       {"/sys/fs/cgroup/x/memory.max", "much\n"},
                                       {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "5\n"}});
  EXPECT_FALSE(limits.cpu_quota);
  EXPECT_FALSE(limits.memory);
  EXPECT_TRUE(limits.notes.empty());
}

}  // namespace
}  // namespace motley::cluster
