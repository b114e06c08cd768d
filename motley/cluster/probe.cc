#include "motley/cluster/probe.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <thread>

#include "motley/base/text.h"
#include "motley/cluster/cuda_driver.h"
#include "motley/cluster/host_limits.h"

namespace motley::cluster {
namespace {

constexpr std::int64_t kMebibyte = 1 << 20;

// Counts the cores that this process may be scheduled on. The call fails if the machine has more
// cores than the set has bits, so larger sets are tried.
int find_affinity() {
  for (int cores = 1024; cores <= 1 << 20; cores *= 2) {
    cpu_set_t* set = CPU_ALLOC(static_cast<std::size_t>(cores));
    if (set == nullptr) break;
    const std::size_t size = CPU_ALLOC_SIZE(static_cast<std::size_t>(cores));
    CPU_ZERO_S(size, set);
    const bool known = sched_getaffinity(0, size, set) == 0;
    const int count = known ? CPU_COUNT_S(size, set) : 0;
    CPU_FREE(set);
    if (known) return std::max(1, count);
  }
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// Returns the host's name up to the first dot, as a node name.
std::string find_node_name() {
  std::array<char, 256> buffer{};
  if (gethostname(buffer.data(), buffer.size() - 1) != 0) return "local";
  std::string name;
  for (const char* c = buffer.data(); *c != '\0' && *c != '.' && name.size() < 64; ++c) {
    const bool allowed = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
                         (*c >= '0' && *c <= '9') || *c == '-' || *c == '_';
    name += allowed ? *c : '-';
  }
  return name.empty() ? "local" : name;
}

// Rounds down to whole MiB: a plan must not need the last kilobyte.
Bytes whole_mebibytes(Bytes bytes) {
  return Bytes(std::max(kMebibyte, bytes.value / kMebibyte * kMebibyte));
}

void add_device(Cluster& cluster, Device device) {
  device.node = NodeId(0);
  device.index = static_cast<int>(cluster.devices.size());
  for (const Device& other : cluster.devices) device.local_index += other.kind == device.kind;
  device.name = fmt::format("{}:{}", cluster.nodes.front().name, device.index);
  cluster.devices.push_back(std::move(device));
}

}  // namespace

namespace {

/// Returns the value of the first line of /proc/cpuinfo that begins with `name`.
std::string cpu_field(std::string_view text, std::string_view name) {
  for (const std::string_view line : split(text, '\n')) {
    const std::size_t colon = line.find(':');
    if (line.starts_with(name) && colon != std::string_view::npos)
      return std::string(trim(line.substr(colon + 1)));
  }
  return "";
}

/// Returns the widest vector instructions for which PyTorch has operators.
std::string_view instruction_set(const std::string& flags) {
  const std::string words = " " + flags + " ";
  for (const std::string_view set : {"avx512f", "avx2", "sve", "asimd"})
    if (words.find(fmt::format(" {} ", set)) != std::string::npos) return set;
  return "no vectors";
}

std::string ascii_line(std::string text) {
  for (char& c : text)
    if (c < ' ' || c > '~' || c == '"' || c == '\\') c = '?';
  return text;
}

struct CpuWords {
  std::string name, instructions;
};

CpuWords find_processor() {
  const std::string text = read_host_file("/proc/cpuinfo").value_or("");
  std::string flags = cpu_field(text, "flags"), name = cpu_field(text, "model name");
  if (flags.empty()) flags = cpu_field(text, "Features");
  if (name.empty()) name = "part " + cpu_field(text, "CPU part");
  return {ascii_line(name), std::string(instruction_set(flags))};
}

std::string describe(const CpuWords& words) {
  return fmt::format("{}, {}", words.name, words.instructions);
}

}  // namespace

std::string describe_cpu() { return describe(find_processor()); }

std::optional<double> core_quota() {
  const HostLimits limits = find_host_limits(read_host_file);
  return limits.cpu_quota && *limits.cpu_quota < 1 ? limits.cpu_quota : std::nullopt;
}

Result<ProbeReport> probe_this_machine() {
  ProbeReport report;
  report.cluster.name = find_node_name();
  report.cluster.nodes.push_back(Node{.name = report.cluster.name});

  const HostLimits limits = find_host_limits(read_host_file);
  const int affinity = find_affinity();
  int threads = affinity;
  if (limits.cpu_quota && *limits.cpu_quota < threads) {
    // Rounded down: with more threads than quota, all of them stop at the end of each period.
    threads = std::max(1, static_cast<int>(std::floor(*limits.cpu_quota)));
  }
  report.cores = affinity;
  const CpuWords processor = find_processor();
  report.processor = processor.name;
  report.instructions = processor.instructions;
  report.notes.push_back(fmt::format("cpu: {} cores by affinity, {} threads", affinity, threads));
  report.notes.insert(report.notes.end(), limits.notes.begin(), limits.notes.end());
  Device cpu;
  cpu.kind = "cpu";
  cpu.model = describe(processor);
  if (limits.cpu_quota && *limits.cpu_quota < 1) cpu.quota = limits.cpu_quota;
  cpu.threads = std::min(threads, 1024);
  if (limits.memory) cpu.memory = whole_mebibytes(*limits.memory);
  add_device(report.cluster, std::move(cpu));

  const CudaDevices cuda = list_cuda_devices();
  report.notes.insert(report.notes.end(), cuda.notes.begin(), cuda.notes.end());
  report.cluster.nodes.front().peers = cuda.peers;
  for (const DriverDevice& found : cuda.devices) {
    report.notes.push_back(fmt::format("cuda: {}, {}", found.name, format_bytes(found.memory)));
    Device device;
    device.kind = "cuda";
    device.model = found.name;
    device.memory = whole_mebibytes(found.memory);
    device.uuid = found.uuid;
    add_device(report.cluster, std::move(device));
  }
  // Text of a driver goes into a file that others parse; a strange name must fail here.
  MOTLEY_RETURN_IF_ERROR(verify_cluster(report.cluster, "this machine"));
  return report;
}

}  // namespace motley::cluster
