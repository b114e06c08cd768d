#include "motley/run/torch/worker_collectives.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <thread>

#include "motley/base/json_fields.h"
#include "motley/base/statistics.h"
#include "motley/base/text.h"
#include "motley/program/parts.h"
#include "motley/run/measure.h"
#include "motley/run/torch/exchange/emulated_link.h"
#include "motley/run/torch/exchange/leveled_communicator.h"
#include "motley/run/torch/overlap.h"

namespace motley::run {
namespace {

constexpr std::int64_t kLeastBytes = 4, kMostBytes = 64 << 20;
constexpr std::int64_t kGrowth = 4;  // of sizes: 4 B, 16 B, ... 64 MiB
constexpr std::int64_t kLeastParts = 4 << 10, kLargestParts = 16 << 20, kPartsGrowth = 16;
constexpr std::int64_t kLeastWays = 64 << 10, kWaysGrowth = 64;

/// After this time a waiting process sleeps.
constexpr std::chrono::microseconds kUntilAsleep(500);
/// Seconds above which a size is not measured: smaller sizes are representative.
constexpr double kMostSum = 1.5, kMostParts = 0.5;

int repeats(std::int64_t bytes, double expected_s) {
  if (bytes > (8 << 20) || expected_s > 0.1) return 3;
  return bytes > (1 << 18) || expected_s > 0.01 ? 9 : 21;
}

/// A measurement: an operation of a group that holds or makes `bytes`.
struct Trial {
  std::string_view op;
  ExchangeMethod method;
  GroupId group;
  int ranks;
  std::int64_t bytes;  ///< a multiple of 4 bytes per rank
};

Result<void> exchange(Communicator& communicator, const Trial& trial, at::Tensor& all,
                      at::Tensor& part) {
  const Counts counts(static_cast<std::size_t>(trial.ranks), part.numel());
  const ExchangeCall call(trial.group, trial.method);
  if (trial.op == program::kSend) {
    const auto over =
        communicator.rank() == 0 ? communicator.send(1, all) : communicator.receive(0, all);
    return over ? Result<void>() : tl::make_unexpected(over.error());
  }
  if (trial.op == program::kAllReduce) return communicator.all_reduce(call, all);
  if (trial.op == program::kAllGather) return communicator.all_gather(call, counts, part, all);
  if (trial.op == program::kReduceScatter)
    return communicator.reduce_scatter(call, counts, all, part);
  at::Tensor out = at::empty_like(all);
  return communicator.all_to_all(call, {counts, counts, part.numel()}, all, out);
}

Result<std::vector<double>> time_exchange(WorkerSession& session, const Trial& trial, int count) {
  // As in a run: a GPU's tensors go through host memory if a CPU takes part.
  const bool on_cuda = session.device().kind == "cuda";
  const auto options = at::TensorOptions().dtype(at::kFloat).device(on_cuda ? at::kCUDA : at::kCPU);
  at::Tensor all = at::zeros({trial.bytes / 4}, options);
  at::Tensor part = at::zeros({trial.bytes / 4 / trial.ranks}, options);
  const int warm_ups = count > 3 ? 2 : 1;
  // A stage waits while another still computes, so a message finds its receiver asleep.
  const bool finds_asleep =
      trial.op == program::kSend && !on_cuda && session.communicator->rank() == 0;
  std::vector<double> seconds;
  for (int i = 0; i < warm_ups + count; ++i) {
    if (finds_asleep) std::this_thread::sleep_for(kUntilAsleep);
    const auto begin = std::chrono::steady_clock::now();
    MOTLEY_RETURN_IF_ERROR(exchange(*session.communicator, trial, all, part));
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
    if (i >= warm_ups) seconds.push_back(spent.count());
  }
  return seconds;
}

/// Returns all-reduces at many sizes, others at few, other methods at two; sends between two ranks.
std::vector<Trial> trials(GroupId group, int ranks, bool has_levels) {
  std::vector<Trial> all;
  for (std::int64_t bytes = kLeastBytes; bytes <= kMostBytes; bytes *= kGrowth)
    all.push_back({program::kAllReduce, ExchangeMethod::kNative, group, ranks, bytes});
  for (std::int64_t bytes = kLeastParts; ranks == 2 && bytes <= kLargestParts;
       bytes *= kPartsGrowth)
    all.push_back({program::kSend, ExchangeMethod::kNative, group, ranks, bytes});
  for (const auto op :
       {program::kAllReduce, program::kAllGather, program::kReduceScatter, program::kAllToAll})
    for (const ExchangeMethod method : program::methods_of(op)) {
      const bool is_native = method == ExchangeMethod::kNative;
      if (is_native && op == program::kAllReduce) continue;
      if (method == ExchangeMethod::kHierarchical && !has_levels) continue;
      const std::int64_t growth = is_native ? kPartsGrowth : kWaysGrowth;
      for (std::int64_t bytes = is_native ? kLeastParts : kLeastWays; bytes <= kLargestParts;
           bytes *= growth)
        all.push_back({op, method, group, ranks, bytes / 4 / ranks * ranks * 4});
    }
  return all;
}

double emulated_seconds(const EmulatedLink& link, const Trial& trial) {
  if (trial.op == program::kSend)
    return 1e-9 * static_cast<double>(link.exchange_ns(2, static_cast<double>(trial.bytes)));
  const auto spread = static_cast<double>(trial.bytes) * (trial.ranks - 1) / trial.ranks;
  return 1e-9 * static_cast<double>(trial.op == program::kAllReduce
                                        ? link.all_reduce_ns(trial.ranks, trial.bytes)
                                        : link.exchange_ns(trial.ranks, spread));
}

/// Estimates, equally on all ranks, how long the trials of a group take: the emulated link's time
/// or, if longer, rank 0's time for the next smaller size, which it shares.
class Expectations {
 public:
  Expectations(const WorkerSession& session, const EmulatedLink& link)
      : session_(session), link_(link) {}

  Result<double> of(const Trial& trial) {
    const double emulated_s = emulated_seconds(link_, trial);
    if (!session_.rendezvous) return emulated_s;
    const std::string key = fmt::format("expected/{}/{}", trial.ranks, number_++);
    if (session_.rank == 0) {
      const auto last = lasts_.find(name_of(trial));
      const double growth = last == lasts_.end()
                                ? 0
                                : last->second.seconds * static_cast<double>(trial.bytes) /
                                      static_cast<double>(last->second.bytes);
      const double expected_s = std::max(emulated_s, growth);
      MOTLEY_RETURN_IF_ERROR(session_.rendezvous->set(key, fmt::format("{:.17g}", expected_s)));
      return expected_s;
    }
    MOTLEY_ASSIGN(const std::string text, session_.rendezvous->get(key, session_.patience()));
    return find_float(text).value_or(emulated_s);
  }

  void took(const Trial& trial, Seconds median) {
    lasts_[name_of(trial)] = {trial.bytes, median.value};
  }

 private:
  static std::string name_of(const Trial& trial) {
    return program::collective_name(trial.op, trial.method);
  }
  struct Last {
    std::int64_t bytes = 1;
    double seconds = 0;
  };
  const WorkerSession& session_;
  const EmulatedLink& link_;
  std::map<std::string, Last> lasts_;  // by operation and method
  int number_ = 0;
};

CollectiveTime summarise(const Trial& trial, std::vector<double> seconds) {
  CollectiveTime time;
  time.op = program::collective_name(trial.op, trial.method);
  time.ranks = trial.ranks;
  time.bytes = Bytes(trial.bytes);
  const double middle = median(seconds);
  time.median = Seconds(middle);
  time.samples = static_cast<std::int64_t>(seconds.size());
  for (double& each : seconds) each = std::abs(each - middle);
  time.spread = median(std::move(seconds)) / middle;
  return time;
}

/// Returns groups of the first 2, 3, 4, 6, 8, 12, 16, ... and all ranks (cost/collective_times.h).
std::vector<program::Group> prefix_groups(int size) {
  std::vector<int> counts;
  for (int power = 2; power < size; power *= 2)
    for (const int count : {power, power + power / 2})
      if (count < size) counts.push_back(count);
  if (size > 1) counts.push_back(size);
  std::vector<program::Group> groups;
  for (const int count : counts) {
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
  if (session.size > 1) session.measured_pairs = {{0, 1}};
  MOTLEY_RETURN_IF_ERROR(join_groups(session));
  reporter.event("ready", Json::object());
  MeasuredGroup times;
  const std::vector<std::string> hosts = session.hosts();
  for (std::size_t i = 0; i < session.program.groups.size(); ++i) {
    const auto ranks = static_cast<int>(session.program.groups[i].members.size());
    // A rank outside all smaller groups waits here, longer than an exchange may.
    if (session.rendezvous)
      MOTLEY_RETURN_IF_ERROR(
          session.rendezvous->barrier(fmt::format("{} ranks", ranks), session.patience()));
    if (session.rank >= ranks) continue;
    std::vector<int> members;
    for (int rank = 0; rank < ranks; ++rank) members.push_back(rank);
    const EmulatedLink link = group_link(session.job.devices, members);
    const bool has_levels = !find_levels(members, hosts, session.rank).hosts.empty();
    const GroupId group(static_cast<std::int64_t>(i));
    Expectations expectations(session, link);
    for (const Trial& trial : trials(group, ranks, has_levels)) {
      MOTLEY_ASSIGN(const double expected_s, expectations.of(trial));
      if (expected_s > (trial.op == program::kAllReduce ? kMostSum : kMostParts)) continue;
      MOTLEY_ASSIGN(std::vector<double> seconds,
                    time_exchange(session, trial, repeats(trial.bytes, expected_s)));
      CollectiveTime& time = times.collectives.emplace_back(summarise(trial, std::move(seconds)));
      expectations.took(trial, time.median);
      time.backend = session.communicator->transport();
      reporter.event("progress", Json{{"ranks", ranks}, {"bytes", trial.bytes}});
    }
  }
  if (session.size > 1) {
    times.backend = session.communicator->transport();
    MOTLEY_ASSIGN(times.overlaps,
                  measure_overlap(session, GroupId(session.program.groups.size() - 1)));
  }
  if (session.rendezvous)
    MOTLEY_RETURN_IF_ERROR(session.rendezvous->barrier("end", session.patience()));
  if (session.rank == 0) reporter.event("collectives", fields_to_json(times));
  reporter.event("done", Json{{"steps", 0}, {"reason", "finished"}});
  return {};
}

}  // namespace motley::run
