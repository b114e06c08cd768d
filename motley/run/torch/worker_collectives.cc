#include "motley/run/torch/worker_collectives.h"

#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "motley/base/statistics.h"
#include "motley/run/measure.h"
#include "motley/run/torch/emulated_link.h"
#include "motley/run/torch/overlap.h"

namespace motley::run {
namespace {

constexpr std::int64_t kLeastBytes = 4, kMostBytes = 64 << 20;
constexpr std::int64_t kGrowth = 4;  // of sizes: 4 B, 16 B, ... 64 MiB

/// Slower than this is not measured: the smaller sizes say the same.
constexpr double kMostEmulated = 3.0;

/// The same on all ranks, so it depends on the size and the emulated link only.
int repeats(std::int64_t bytes, double emulated_s) {
  if (bytes > (8 << 20) || emulated_s > 0.1) return 3;
  return bytes > (1 << 18) || emulated_s > 0.01 ? 9 : 21;
}

/// Seconds of each of `count` operations, on this rank.
Result<std::vector<double>> time_all_reduce(WorkerSession& session, GroupId group,
                                            std::int64_t bytes, int count) {
  const bool on_cuda = session.communicator->transport() == "nccl";
  at::Tensor tensor = at::zeros(
      {bytes / 4}, at::TensorOptions().dtype(at::kFloat).device(on_cuda ? at::kCUDA : at::kCPU));
  constexpr int kWarmUps = 2;
  std::vector<double> seconds;
  for (int i = 0; i < kWarmUps + count; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    MOTLEY_RETURN_IF_ERROR(session.communicator->all_reduce(group, tensor));
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
    if (i >= kWarmUps) seconds.push_back(spent.count());
  }
  return seconds;
}

CollectiveTime summarise(std::vector<double> seconds) {
  CollectiveTime time;
  time.op = "motley::all_reduce";
  const double middle = median(seconds);
  time.median = Seconds(middle);
  time.samples = static_cast<std::int64_t>(seconds.size());
  for (double& each : seconds) each = std::abs(each - middle);
  time.spread = median(std::move(seconds)) / middle;
  return time;
}

/// Groups of the first 2, 3, ... n ranks.
std::vector<program::Group> prefix_groups(int size) {
  std::vector<program::Group> groups;
  for (int count = 2; count <= size; ++count) {
    program::Group group;
    for (int rank = 0; rank < count; ++rank) group.members.push_back(Rank(rank));
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace

Result<void> measure_collectives(WorkerSession& session, const Reporter& reporter) {
  session.program = {};
  session.program.groups = prefix_groups(session.size);
  MOTLEY_RETURN_IF_ERROR(join_groups(session));
  reporter.event("ready", Json::object());
  GroupTimes times;
  for (std::size_t i = 0; i < session.program.groups.size(); ++i) {
    const int ranks = static_cast<int>(i) + 2;
    if (session.rank >= ranks) continue;
    std::vector<int> members;
    for (int rank = 0; rank < ranks; ++rank) members.push_back(rank);
    const EmulatedLink link = group_link(session.job.devices, members);
    for (std::int64_t bytes = kLeastBytes; bytes <= kMostBytes; bytes *= kGrowth) {
      const double emulated_s = 1e-9 * static_cast<double>(link.all_reduce_ns(ranks, bytes));
      if (emulated_s > kMostEmulated) break;
      MOTLEY_ASSIGN(std::vector<double> seconds,
                    time_all_reduce(session, GroupId(static_cast<std::int64_t>(i)), bytes,
                                    repeats(bytes, emulated_s)));
      CollectiveTime& time = times.collectives.emplace_back(summarise(std::move(seconds)));
      time.backend = session.communicator->transport();
      time.ranks = ranks;
      time.bytes = Bytes(bytes);
      reporter.event("progress", Json{{"ranks", ranks}, {"bytes", bytes}});
    }
  }
  if (session.size > 1) {
    times.backend = session.communicator->transport();
    MOTLEY_ASSIGN(times.overlaps, measure_overlap(session, GroupId(session.size - 2)));
  }
  if (session.rendezvous)
    MOTLEY_RETURN_IF_ERROR(session.rendezvous->barrier("end", session.patience()));
  if (session.rank == 0) reporter.event("collectives", group_times_to_json(times));
  reporter.event("done", Json{{"steps", 0}, {"reason", "finished"}});
  return {};
}

}  // namespace motley::run
