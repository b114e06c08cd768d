#include "motley/cost/profile_cost.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "motley/base/statistics.h"
#include "motley/base/text.h"
#include "motley/cluster/kinds.h"
#include "motley/cluster/quantity_text.h"
#include "motley/cost/links/collectives.h"
#include "motley/program/parts.h"
#include "motley/program/program_text.h"

namespace motley::cost {
namespace {

constexpr const char* kLocalRoute = "local";

std::set<NodeId> nodes_of(const cluster::Cluster& cluster, const std::vector<DeviceId>& devices) {
  std::set<NodeId> nodes;
  for (const DeviceId id : devices) nodes.insert(cluster.device(id).node);
  return nodes;
}

/// Makes the call for what CostModel::transfer counts.
CollectiveCall call_of(std::string_view op, const ExchangeSize& exchange,
                       const std::vector<DeviceId>& group) {
  const auto size = static_cast<double>(exchange.bytes.value);
  const Collective kind = collective_of(op);
  if (kind == Collective::kSend) return {.op = kind, .devices = group, .bytes = {size, 0}};
  if (exchange.parts.size() == group.size() && !group.empty()) {
    CollectiveCall call{.op = kind, .devices = group};
    for (const Bytes part : exchange.parts) call.bytes.push_back(static_cast<double>(part.value));
    return call;
  }
  // Bytes are counted as in the store: once for a whole tensor, per rank for an all-to-all.
  const auto holders = kind == Collective::kAllToAll ? static_cast<double>(group.size()) : 1.0;
  return even_call(kind, group, holders * size);
}

/// Kinds of the table of kinds cannot be measured here.
bool is_planned_kind(const std::string& kind) { return kind != "cpu" && kind != "cuda"; }

}  // namespace

bool has_levels(const cluster::Cluster& cluster, const std::vector<DeviceId>& devices) {
  const std::size_t nodes = nodes_of(cluster, devices).size();
  return nodes > 1 && nodes < devices.size();
}

bool have_own_links(const cluster::Cluster& cluster, const std::vector<DeviceId>& devices) {
  std::set<std::string> hosts;
  for (const DeviceId id : devices) {
    const cluster::Device& device = cluster.device(id);
    if (is_planned_kind(device.kind)) return true;
    hosts.insert(cluster.node(device.node).host);
  }
  return hosts.size() > 1;
}

Transport usual_transport(Backend backend) {
  return {.latency = Seconds(backend == Backend::kNccl ? 10e-6 : 50e-6)};
}

std::string route_key(const cluster::Cluster& cluster, const std::vector<DeviceId>& devices) {
  const auto route = cluster::group_route(cluster, devices);
  if (!route && backend_key(cluster, devices) == "nccl" && nodes_of(cluster, devices).size() == 1) {
    const std::string& peers = cluster.node(cluster.device(devices.front()).node).peers;
    if (!peers.empty()) return fmt::format("{} by {}", kLocalRoute, peers);
  }
  if (!route) return kLocalRoute;
  return cluster::short_rate(route->bandwidth) + "+" + cluster::short_seconds(route->latency);
}

namespace {

/// Returns whether two devices are the same GPU: two nodes of one host may name it.
bool shares_gpus(const cluster::Cluster& cluster) {
  std::vector<DeviceId> all;
  for (std::size_t i = 0; i < cluster.devices.size(); ++i)
    all.push_back(DeviceId(static_cast<std::int64_t>(i)));
  return !cluster::find_shared_gpus(cluster, all).empty();
}

}  // namespace

std::string host_backend_key(const cluster::Cluster& cluster) {
  const bool has_gpu =
      std::any_of(cluster.devices.begin(), cluster.devices.end(),
                  [](const cluster::Device& device) { return device.kind == "cuda"; });
  return std::string(cluster.transport == "gloo" ? "gloo only" : "gloo") +
         (has_gpu ? " of gpus" : "");
}

std::string backend_key(const cluster::Cluster& cluster, const std::vector<DeviceId>& devices) {
  const bool has_cpu = std::any_of(devices.begin(), devices.end(), [&](DeviceId id) {
    return cluster::is_cpu_kind(cluster.device(id).kind);
  });
  if (!has_cpu && !shares_gpus(cluster)) return "nccl";
  return host_backend_key(cluster);
}

DeviceKey device_key(const cluster::Device& device, const std::string& given) {
  const bool tf32 = given.ends_with(kTf32Suffix);
  const std::string torch_version = given.substr(0, given.find('+'));
  const std::vector<std::string_view> parts = split(torch_version, '.');
  const std::string& model = device.model.empty() ? device.taken_for : device.model;
  std::string name = model.empty() ? device.kind : device.kind == "cpu" ? "cpu " + model : model;
  if (device.quota) name += fmt::format(", {:.2g} of a core", *device.quota);
  std::string minor = parts.size() < 2 ? torch_version : fmt::format("{}.{}", parts[0], parts[1]);
  if (tf32 && !cluster::is_cpu_kind(device.kind)) minor += kTf32Suffix;
  return {std::move(name), device.threads, std::move(minor)};
}

std::vector<DeviceId> neighbours(const cluster::Cluster& cluster, DeviceId device) {
  std::vector<DeviceId> found;
  const cluster::Device& own = cluster.device(device);
  if (own.kind != "cpu") return found;
  for (std::size_t i = 0; i < cluster.devices.size(); ++i) {
    const DeviceId id(static_cast<std::int64_t>(i));
    const cluster::Device& other = cluster.device(id);
    if (id != device && other.kind == "cpu" &&
        cluster.node(other.node).host == cluster.node(own.node).host)
      found.push_back(id);
  }
  return found;
}

DeviceKey emulated_key(const cluster::Cluster& cluster, DeviceId device,
                       const std::string& torch_version) {
  std::vector<double> speeds;
  for (const DeviceId id : neighbours(cluster, device)) speeds.push_back(cluster.device(id).speed);
  std::sort(speeds.begin(), speeds.end());
  DeviceKey key = device_key(cluster.device(device), torch_version);
  key.kind += fmt::format(" at {}", cluster.device(device).speed);
  if (!speeds.empty()) key.kind += fmt::format(" beside {}", fmt::join(speeds, " "));
  return key;
}

bool has_pace(const cluster::Cluster& cluster, DeviceId device) {
  if (cluster.device(device).quota) return true;
  const auto beside = neighbours(cluster, device);
  return !beside.empty() && (cluster.device(device).speed < 1 ||
                             std::any_of(beside.begin(), beside.end(), [&](DeviceId id) {
                               return cluster.device(id).speed < 1;
                             }));
}

Bytes framework_bytes(const cluster::Device& device, Bytes tensors) {
  if (cluster::is_cpu_kind(device.kind)) return Bytes(0);
  constexpr std::int64_t kContext = std::int64_t{512} << 20;
  // The header has the sources of both numbers.
  constexpr double kAllocator = 0.071;
  const cluster::Framework known =
      device.framework.value_or(cluster::Framework{Bytes(kContext), {}});
  const double reserve = known.reserve.value_or(kAllocator);
  return known.context + Bytes(std::llround(reserve * static_cast<double>(tensors.value)));
}

Bytes with_framework(const cluster::Device& device, Bytes tensors) {
  return tensors + framework_bytes(device, tensors);
}

std::int64_t usual_samples(const cluster::Cluster& cluster, DeviceId device,
                           std::int64_t global_batch) {
  const double own = cluster.device(device).speed;
  double total = own;
  for (const DeviceId id : neighbours(cluster, device)) total += cluster.device(id).speed;
  return std::max<std::int64_t>(1, std::llround(static_cast<double>(global_batch) * own / total));
}

DeviceKey shared_key(const cluster::Cluster& cluster, DeviceId device,
                     const std::string& torch_version) {
  DeviceKey key = device_key(cluster.device(device), torch_version);
  if (const auto beside = neighbours(cluster, device); !beside.empty())
    key.kind += fmt::format(" beside {}", beside.size());
  return key;
}

ProfileCost::ProfileCost(const cluster::Cluster& cluster,
                         std::map<std::string, DeviceTimes> devices, CollectiveTimes collectives)
    : cluster_(cluster),
      network_(cluster_),
      devices_(std::move(devices)),
      collectives_(std::move(collectives)) {
  has_shared_gpus_ = shares_gpus(cluster_);
  for (std::size_t i = 0; i < cluster_.devices.size(); ++i) {
    ids_.emplace(cluster_.devices[i].name, static_cast<std::int64_t>(i));
    is_cpu_.push_back(cluster::is_cpu_kind(cluster_.devices[i].kind) ? 1 : 0);
  }
}

Backend ProfileCost::backend_of(const std::vector<DeviceId>& group) const {
  const bool has_cpu = std::any_of(group.begin(), group.end(),
                                   [&](DeviceId id) { return is_cpu_[id.index()] != 0; });
  return has_cpu || has_shared_gpus_ ? Backend::kGloo : Backend::kNccl;
}

namespace {

/// Returns the table that the program fits; null if there is none.
const InstructionTimes* find_table(const ProfileCost::DeviceTimes& times,
                                   const program::DeviceProgram& program) {
  const InstructionTimes* table = times.of(program).table.get();
  return table != nullptr && table->fits(program) ? table : nullptr;
}

void add_pauses(const program::DeviceProgram& program, Seconds pause,
                std::vector<Seconds>& seconds) {
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const program::Instruction& instruction = program.instructions[i];
    const bool waits = std::any_of(
        instruction.waits.begin(), instruction.waits.end(),
        [&](InstructionId id) { return program.instructions[id.index()].op == program::kReceive; });
    if (instruction.lane == Lane::kCompute && waits) seconds[i] += pause;
  }
}

std::vector<Seconds> table_seconds(const InstructionTimes& table, std::int64_t samples,
                                   double speed) {
  std::vector<Seconds> seconds;
  seconds.reserve(table.size());
  for (std::size_t i = 0; i < table.size(); ++i)
    seconds.push_back(table.at(i, static_cast<double>(samples)) / speed);
  return seconds;
}

}  // namespace

Result<const ProfileCost::DeviceTimes*> ProfileCost::times_of(
    const program::DeviceProgram& program) const {
  const auto found = devices_.find(program.device);
  if (found != devices_.end()) return &found->second;
  return usage_error("cost.missing-device",
                     fmt::format("no times for device '{}'; run `motley profile` with this cluster",
                                 program.device));
}

Result<ProfileCost::Times> ProfileCost::other_times(const DeviceTimes& times,
                                                    const program::DeviceProgram& program) const {
  const TimeSource* source = times.of(program).source.get();
  if (source == nullptr)
    return stale_error("cost.other-program",
                       fmt::format("the program of '{}' has {} instructions, the profiled model "
                                   "another number; was it made from another model?",
                                   program.device, program.instructions.size()));
  const auto answers = source->times(program);
  Times found;
  Seconds total;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (!answers[i])
      return usage_error(
          "cost.missing-profile",
          fmt::format("no measurement of {} on {}; run `motley profile` with this "
                      "plan",
                      program::cost_key(program, program.instructions[i]), program.device));
    found.seconds.push_back(answers[i]->seconds);
    found.scratch.push_back(answers[i]->scratch);
    total += answers[i]->seconds;
  }
  double speed = times.pace.at(total);
  if (times.most_alone && !program::is_in_group(program))
    speed = std::min(speed, *times.most_alone);
  for (Seconds& seconds : found.seconds) seconds = seconds / speed;
  if (times.pause > Seconds(0)) add_pauses(program, times.pause, found.seconds);
  return found;
}

Result<ProfileCost::Times> ProfileCost::times(const program::DeviceProgram& program) const {
  MOTLEY_ASSIGN(const DeviceTimes* times, times_of(program));
  const InstructionTimes* table = find_table(*times, program);
  if (table == nullptr) return other_times(*times, program);
  return Times{table_seconds(*table, program.samples, times->table_speed()),
               table->scratch_bytes(program.samples)};
}

Result<std::vector<ProfileCost::Times>> ProfileCost::all_times(
    const program::Program& program) const {
  std::vector<Times> all;
  std::vector<const DeviceTimes*> devices;
  std::vector<const InstructionTimes*> tables;  // that the programs fit; null: none
  std::vector<std::size_t> distinct;            // the first rank of each class
  // For programs that fit a table only the samples matter, not where they begin.
  const auto is_like = [&](std::size_t rank, std::size_t known) {
    const program::DeviceProgram &a = program.devices[rank], &b = program.devices[known];
    if (!devices[rank]->is_same(*devices[known]) || a.samples != b.samples) return false;
    if (tables[rank] != nullptr || tables[known] != nullptr) return tables[rank] == tables[known];
    return a.buffers == b.buffers && a.instructions == b.instructions;
  };
  for (std::size_t rank = 0; rank < program.devices.size(); ++rank) {
    MOTLEY_ASSIGN(const DeviceTimes* device, times_of(program.devices[rank]));
    devices.push_back(device);
    tables.push_back(find_table(*device, program.devices[rank]));
    const auto known = std::find_if(distinct.begin(), distinct.end(),
                                    [&](std::size_t other) { return is_like(rank, other); });
    if (known != distinct.end()) {
      all.push_back(all[*known]);
      continue;
    }
    distinct.push_back(rank);
    MOTLEY_ASSIGN(all.emplace_back(), times(program.devices[rank]));
  }
  return all;
}

Result<std::vector<DeviceId>> ProfileCost::find_devices(
    const std::vector<std::string>& names) const {
  std::vector<DeviceId> ids;
  for (const std::string& name : names) {
    const auto found = ids_.find(name);
    if (found == ids_.end())
      return tl::make_unexpected(cluster::find_device(cluster_, name).error());
    ids.push_back(found->second);
  }
  return ids;
}

Result<std::vector<DeviceId>> ProfileCost::find_group(std::string_view op,
                                                      const std::vector<std::string>& names) const {
  MOTLEY_ASSIGN(std::vector<DeviceId> ids, find_devices(names));
  MOTLEY_RETURN_IF_ERROR(check_levels(op, ids));
  return ids;
}

Result<void> ProfileCost::check_levels(std::string_view op,
                                       const std::vector<DeviceId>& group) const {
  if (program::split_collective_name(op).method != ExchangeMethod::kHierarchical) return {};
  if (has_levels(cluster_, group)) return {};
  return usage_error("cost.no-levels",
                     fmt::format("{} among {} devices of {} hosts: wanted two hosts or more, one "
                                 "of them with several",
                                 op, group.size(), nodes_of(cluster_, group).size()));
}

bool ProfileCost::is_planned(DeviceId device) const {
  return is_planned_kind(cluster_.device(device).kind);
}

bool ProfileCost::is_planned_only(const std::vector<DeviceId>& group) const {
  return std::any_of(group.begin(), group.end(), [&](DeviceId id) { return is_planned(id); });
}

/// A send without measurements also uses the links: no group may have been measured there.
bool ProfileCost::is_by_links(std::string_view op, const std::vector<DeviceId>& group) const {
  if (group.size() < 2) return false;
  if (is_planned_only(group)) return true;
  return op == program::kSend &&
         !collectives_.curve(op, route_key(cluster_, group), static_cast<int>(group.size()),
                             backend_key(cluster_, group));
}

std::optional<LeastAllReduce> ProfileCost::least_all_reduce(
    const std::vector<DeviceId>& devices) const {
  if (!std::all_of(devices.begin(), devices.end(), [&](DeviceId id) { return is_planned(id); }))
    return std::nullopt;
  const Backend backend = backend_of(devices);
  return LeastAllReduce(network_, devices, usual_transport(backend), backend);
}

Result<Transfer> ProfileCost::measured_transfer(std::string_view op, const ExchangeSize& exchange,
                                                const std::vector<DeviceId>& group) const {
  const std::string route = route_key(cluster_, group);
  MOTLEY_ASSIGN(const auto curve, collectives_.curve(op, route, static_cast<int>(group.size()),
                                                     backend_key(cluster_, group)));
  const std::vector<double> capacities = network_.capacities();
  const auto over_links = [&](const CollectiveCall& call, Algorithm algorithm) {
    return build_transfer(network_, call, algorithm, {});
  };
  auto size = static_cast<double>(exchange.bytes.value);
  const auto fixed = [&] {
    const Affine line = curve.piece(size);
    return Transfer{{{line.latency + Seconds(line.seconds_per_byte * size), {}}}};
  };
  // Within a machine no link is shared: a fixed time.
  if (route == kLocalRoute) return fixed();
  const bool has_parts = !exchange.parts.empty() && have_own_links(cluster_, group);
  const CollectiveCall call =
      has_parts ? call_of(op, exchange, group) : call_of(op, {exchange.bytes}, group);
  // The backend's algorithm for even parts is unknown, but a ring's links are the fewest that join
  // all.
  const bool is_direct = call.op == Collective::kSend || call.op == Collective::kAllToAll;
  const Algorithm algorithm = has_parts   ? planned_algorithms(op, group).front()
                              : is_direct ? Algorithm::kDirect
                                          : Algorithm::kRing;
  Transfer transfer = over_links(call, algorithm);
  const double alone = isolated_time(transfer, capacities).value;
  if (has_parts && alone > 0) {
    // Uneven parts take what even ones take that load the fullest link as much.
    const CollectiveCall even = call_of(op, {exchange.bytes}, group);
    size *= alone / isolated_time(over_links(even, algorithm), capacities).value;
  }
  const Affine line = curve.piece(size);
  const double moving = line.seconds_per_byte * size;
  if (!(moving > 0) || transfer.phases.empty()) return fixed();
  for (TransferPhase& phase : transfer.phases) {
    // Alone it takes the measured time whatever the cluster file states; beside others it shares.
    const bool is_all = transfer.phases.size() == 1;
    const double seconds =
        is_all ? moving : moving * isolated_time(Transfer{{phase}}, capacities).value / alone;
    if (!(seconds > 0)) phase.flows.clear();
    for (Flow& flow : phase.flows) {
      flow.most_rate = flow.bytes / seconds;
      for (LinkUse& use : flow.uses)  // the measurement showed that the link carries it
        use.weight =
            std::min(use.weight, capacities[static_cast<std::size_t>(use.link)] / flow.most_rate);
    }
  }
  transfer.phases.front().delay = line.latency;
  return transfer;
}

std::vector<Algorithm> ProfileCost::planned_algorithms(std::string_view op,
                                                       const std::vector<DeviceId>& group) const {
  return backend_algorithms(backend_of(group), collective_of(op),
                            program::split_collective_name(op).method);
}

Transfer ProfileCost::planned_transfer(std::string_view op, const ExchangeSize& size,
                                       const std::vector<DeviceId>& group) const {
  return best_algorithm(network_, call_of(op, size, group), usual_transport(backend_of(group)),
                        planned_algorithms(op, group))
      .transfer;
}

Result<std::vector<CollectiveCurve>> ProfileCost::collective_curves(
    std::string_view op, const std::vector<std::string>& devices) const {
  MOTLEY_ASSIGN(const std::vector<DeviceId> ids, find_devices(devices));
  return collective_curves(op, ids);
}

Result<std::vector<CollectiveCurve>> ProfileCost::collective_curves(
    std::string_view op, const std::vector<DeviceId>& ids) const {
  MOTLEY_RETURN_IF_ERROR(check_levels(op, ids));
  if (!is_by_links(op, ids)) {
    MOTLEY_ASSIGN(auto curve,
                  collectives_.curve(op, route_key(cluster_, ids), static_cast<int>(ids.size()),
                                     backend_key(cluster_, ids)));
    return std::vector{std::move(curve)};
  }
  return curves_by_links(op, ids);
}

std::vector<CollectiveCurve> ProfileCost::curves_by_links(std::string_view op,
                                                          const std::vector<DeviceId>& ids) const {
  // A transfer's delays do not depend on its bytes, and its flows take proportional times.
  constexpr std::int64_t kBytes = 1 << 30;
  const CollectiveCall call = call_of(op, {Bytes(kBytes)}, ids);
  const Transport transport = usual_transport(backend_of(ids));
  std::vector<CollectiveCurve> curves;
  for (const Algorithm algorithm : planned_algorithms(op, ids)) {
    const Transfer transfer = build_transfer(network_, call, algorithm, transport);
    Affine line;
    for (const TransferPhase& phase : transfer.phases) line.latency += phase.delay;
    const Seconds whole = isolated_time(transfer, network_.capacities());
    line.seconds_per_byte = (whole - line.latency).value / static_cast<double>(kBytes);
    curves.push_back({.fewer = {.small = line, .large = line}});
  }
  return curves;
}

Result<Seconds> ProfileCost::collective_time(std::string_view op, Bytes bytes,
                                             const std::vector<std::string>& devices) const {
  MOTLEY_ASSIGN(const std::vector<DeviceId> ids, find_group(op, devices));
  if (is_by_links(op, ids))
    return isolated_time(planned_transfer(op, {bytes}, ids), network_.capacities());
  return collectives_.at(op, route_key(cluster_, ids), static_cast<int>(ids.size()), bytes,
                         backend_key(cluster_, ids));
}

Result<Transfer> ProfileCost::transfer(std::string_view op, const ExchangeSize& size,
                                       const std::vector<std::string>& devices) const {
  MOTLEY_ASSIGN(const std::vector<DeviceId> ids, find_group(op, devices));
  if (is_by_links(op, ids)) return planned_transfer(op, size, ids);
  return measured_transfer(op, size, ids);
}

double ProfileCost::interference(const std::string& device,
                                 const std::vector<std::string>& group) const {
  const auto times = devices_.find(device);
  if (times == devices_.end() || times->second.interference.empty()) return 0;
  const auto ids = find_devices(group);
  if (!ids) return 0;
  const std::string backend = backend_key(cluster_, *ids), route = route_key(cluster_, *ids);
  const auto distance = [&](const InterferenceEntry& entry) {
    return std::abs(entry.ranks - static_cast<int>(ids->size()));
  };
  const InterferenceEntry* nearest = nullptr;
  for (const InterferenceEntry& entry : times->second.interference)
    if (entry.backend == backend && entry.route == route &&
        (nearest == nullptr || distance(entry) < distance(*nearest)))
      nearest = &entry;
  return nearest == nullptr ? 0 : nearest->factor;
}

std::vector<double> ProfileCost::link_capacities() const { return network_.capacities(); }

}  // namespace motley::cost
