#include "motley/control/training/rented_machines.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "motley/base/text.h"
#include "motley/control/planning/slowed_split.h"

namespace motley::control {
namespace {

constexpr double kTicks = 1000;  // from the beginning to the deadline, each at least a second

std::string describe(const cluster::Node& node, const std::string& kind) {
  return fmt::format("{} {} {}", kind, node.spot ? "spot" : "on demand", node.zone);
}

std::string describe_offers(const elastic::Market& market) {
  std::vector<std::string> names;
  for (const elastic::Offer& offer : market.offers) names.push_back(elastic::name_of(offer));
  return join(names, ", ");
}

/// Returns the machines of earlier runs, shifted to end where this run begins.
elastic::Lifetimes before(const elastic::Lifetimes& seen) {
  Seconds latest(0);
  for (const auto& [name, machine] : seen.machines())
    latest = std::max({latest, machine.start, machine.end.value_or(Seconds(0))});
  elastic::Lifetimes shifted(seen.options());
  for (auto [name, machine] : seen.machines()) {
    machine.start -= latest;
    machine.end = machine.end.value_or(latest) - latest;
    shifted.add("before: " + name, machine);
  }
  return shifted;
}

Result<std::size_t> find_offer(const elastic::Market& market, const cluster::Node& node,
                               const std::vector<const cluster::Device*>& devices) {
  for (std::size_t offer = 0; offer < market.offers.size(); ++offer) {
    const elastic::Offer& each = market.offers[offer];
    if (each.zone != node.zone || each.is_spot != node.spot) continue;
    const bool fits = each.devices == static_cast<int>(devices.size()) &&
                      std::all_of(devices.begin(), devices.end(),
                                  [&](const auto* device) { return device->kind == each.kind; });
    if (fits) return offer;
  }
  const std::string count = devices.size() == 1 ? "" : fmt::format("{}x", devices.size());
  return usage_error(
      "market.node",
      fmt::format("node '{}': the market has no offer of {}{}; it has {}", node.name, count,
                  describe(node, devices.front()->kind), describe_offers(market)));
}

double speed_of(const cluster::Device& device) {
  return device.speed * device.threads * device.quota.value_or(1);
}

/// Groups of machines that are interchangeable in a split of the batch.
struct Types {
  std::vector<std::vector<std::size_t>> members;
  std::vector<std::size_t> of;
};
Types find_types(const cluster::Cluster& cluster,
                 const std::vector<elastic::JobMachine>& machines) {
  std::map<std::string, std::size_t> numbers;
  Types types;
  for (std::size_t m = 0; m < machines.size(); ++m) {
    std::string key = machines[m].offer ? fmt::format("{}", *machines[m].offer) : "own";
    for (const std::string& name : machines[m].devices)
      if (const auto id = cluster::find_device(cluster, name)) {
        const cluster::Device& device = cluster.device(*id);
        key += fmt::format(" {} {}", device.kind, speed_of(device));
      }
    const std::size_t type = numbers.try_emplace(key, types.members.size()).first->second;
    if (type == types.members.size()) types.members.emplace_back();
    types.members[type].push_back(m);
    types.of.push_back(type);
  }
  return types;
}

}  // namespace

elastic::SpeedTogether speed_by_prices(const ChosenPlan& chosen,
                                       const std::vector<elastic::JobMachine>& machines) {
  if (!chosen.priced.evaluator) return nullptr;
  const Types types = find_types(chosen.inputs.cluster, machines);
  std::size_t sets = 1;
  for (const std::vector<std::size_t>& members : types.members)
    sets = std::min(sets * (members.size() + 1), kMostSets + 1);
  if (sets > kMostSets) return nullptr;
  std::map<std::vector<std::size_t>, double> speeds;
  for (std::size_t set = 1; set < sets; ++set) {
    std::vector<std::size_t> counts;
    DeviceSetting setting;
    std::size_t rest = set;
    for (const std::vector<std::size_t>& members : types.members) {
      counts.push_back(rest % (members.size() + 1));
      rest /= members.size() + 1;
      for (std::size_t i = counts.back(); i < members.size(); ++i)
        for (const std::string& device : machines[members[i]].devices) setting.gone.insert(device);
    }
    const std::optional<Seconds> step = best_step(chosen, setting);
    speeds[counts] = step && step->value > 0 ? 1 / step->value : 0;
  }
  return [types, speeds = std::move(speeds)](const elastic::Machines& together) {
    std::vector<std::size_t> counts(types.members.size());
    for (const std::size_t machine : together)
      if (machine < types.of.size()) ++counts[types.of[machine]];
    const auto found = speeds.find(counts);
    return found == speeds.end() ? 0 : found->second;
  };
}

Result<std::vector<elastic::JobMachine>> find_machines(const elastic::Market& market,
                                                       const cluster::Cluster& cluster,
                                                       const std::vector<DeviceId>& ids,
                                                       const std::vector<std::string>& absent) {
  if (market.server)
    return usage_error("market.server",
                       "a market with [server] is of asynchronous workers, which run does not "
                       "train with; leave [server] out");
  for (const elastic::Offer& offer : market.offers)
    if (std::none_of(ids.begin(), ids.end(),
                     [&](DeviceId device) { return cluster.device(device).kind == offer.kind; }))
      return usage_error("market.offer", fmt::format("offer '{}': no device of the cluster is of "
                                                     "kind '{}'",
                                                     elastic::name_of(offer), offer.kind));
  std::vector<elastic::JobMachine> machines;
  bool rents = false;
  for (std::size_t n = 0; n < cluster.nodes.size(); ++n) {
    const cluster::Node& node = cluster.nodes[n];
    std::vector<const cluster::Device*> devices;
    elastic::JobMachine machine{.name = node.name, .speed = 0};
    std::size_t away = 0;
    for (const DeviceId id : ids) {
      const cluster::Device& device = cluster.device(id);
      if (device.node.index() != n) continue;
      devices.push_back(&device);
      machine.devices.push_back(device.name);
      machine.speed += speed_of(device);
      away += std::find(absent.begin(), absent.end(), device.name) == absent.end() ? 0 : 1;
    }
    if (devices.empty()) continue;
    if (away > 0 && away < devices.size())
      return usage_error("market.absent", fmt::format("node '{}': {} of its {} devices are absent; "
                                                      "a rented machine is there or not",
                                                      node.name, away, devices.size()));
    machine.is_there = away == 0;
    if (!node.zone.empty()) {
      MOTLEY_ASSIGN(machine.offer, find_offer(market, node, devices));
      rents = true;
    }
    machines.push_back(std::move(machine));
  }
  if (rents) return machines;
  return usage_error("market.node",
                     "no [[node]] of the cluster says a zone, so none is rented; the market has " +
                         describe_offers(market));
}

std::optional<std::int64_t> steps_between_checkpoints(
    const MarketQuestion& question, const std::vector<elastic::JobMachine>& machines, Seconds step,
    Bytes state) {
  elastic::Mix mix{std::vector<int>(question.market.offers.size(), 0)};
  for (const elastic::JobMachine& machine : machines) {
    if (!machine.is_there) continue;
    if (!machine.offer) return std::nullopt;
    ++mix.machines[*machine.offer];
  }
  const Seconds every =
      elastic::save_interval(question.market, mix, before(question.lifetimes).forecast(Seconds(0)),
                             elastic::checkpoint_time(question.market, state));
  const double steps = every / step;
  if (!(steps < 1e12)) return std::nullopt;
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(steps));
}

elastic::JobRenting make_renting(const MarketQuestion& question,
                                 std::vector<elastic::JobMachine> machines,
                                 const RentChoices& choices, std::int64_t steps,
                                 std::optional<Seconds> step) {
  elastic::RentingJob job{.market = question.market,
                          .machines = std::move(machines),
                          .steps = steps,
                          .step = step,
                          .deadline = choices.deadline,
                          .budget = choices.budget};
  job.tick = std::max(job.tick, choices.deadline / kTicks);
  job.rule = choices.rule;
  job.gives_back = choices.gives_back;
  job.speed = choices.speed;
  return {std::move(job), before(question.lifetimes)};
}

}  // namespace motley::control
