#include "motley/simulate/program_tasks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "motley/base/check.h"
#include "motley/cost/links/collectives.h"
#include "motley/program/parts.h"

namespace motley::simulate {
namespace {

using program::Instruction;
using program::Program;

constexpr double kMostSeconds = 1e6;
constexpr double kMostTotal = 0x1p60;
constexpr double kMostInterference = 1e6;
constexpr std::string_view kOneOrder = "all members must reach their collectives in one order";
constexpr std::string_view kBothSides = "a send ends together with its receive";

bool is_possible(Seconds time) { return time.value >= 0 && time.value <= kMostSeconds; }

tl::unexpected<Error> not_possible(Seconds time, const std::string& what) {
  return runtime_error("simulate.cost", fmt::format("{}: the cost model says {} s, wanted 0 to {}",
                                                    what, time.value, kMostSeconds));
}

std::string place(const Program& program, std::size_t rank, std::size_t i) {
  const program::DeviceProgram& device = program.devices[rank];
  return fmt::format("{} ^{} {}", device.device, i, device.instructions[i].full_name());
}

/// A task in lanes of several ranks, and where it was first met.
struct Joint {
  TaskId task;
  std::size_t rank, instruction;
  std::size_t absent;  // ranks that have not joined it yet
  std::int32_t price;  // into Layout::prices_
};

/// Checks a transfer's prices and bounds its time in ns. Links are shared, but while flows are in
/// flight one of their links is full or one of them runs at its own limit.
class TransferCheck {
 public:
  explicit TransferCheck(const std::vector<double>& capacities) : capacities_(capacities) {}

  Result<double> most_ns(const cost::Transfer& transfer, const std::string& what) const {
    double total = 0;
    for (const cost::TransferPhase& phase : transfer.phases) {
      if (!is_possible(phase.delay)) return not_possible(phase.delay, what);
      total += static_cast<double>(to_nanoseconds(phase.delay));
      for (const cost::Flow& flow : phase.flows) {
        MOTLEY_ASSIGN(const double seconds, most_seconds(flow, what));
        total += seconds * 1e9 + 1;
      }
    }
    return total;
  }

 private:
  Result<double> most_seconds(const cost::Flow& flow, const std::string& what) const {
    if (!(flow.bytes >= 0) || !(flow.most_rate >= 0) || std::isinf(flow.bytes + flow.most_rate))
      return runtime_error("simulate.cost", fmt::format("{}: found a flow of {} bytes at up to {} "
                                                        "B/s, wanted neither below 0",
                                                        what, flow.bytes, flow.most_rate));
    double seconds = flow.most_rate > 0 ? flow.bytes / flow.most_rate : 0;
    for (const cost::LinkUse& use : flow.uses) {
      if (use.link < 0 || static_cast<std::size_t>(use.link) >= capacities_.size())
        return runtime_error("simulate.cost",
                             fmt::format("{}: a flow uses link {}, but the cost model has {}", what,
                                         use.link, capacities_.size()));
      if (!(use.weight > 0) || std::isinf(use.weight))
        return runtime_error("simulate.cost",
                             fmt::format("{}: a flow uses link {} with weight {}, wanted above 0",
                                         what, use.link, use.weight));
      seconds += flow.bytes * use.weight / capacities_[static_cast<std::size_t>(use.link)];
    }
    return seconds;
  }

  const std::vector<double>& capacities_;
};

/// Sums transfers in flight at the same time into the first one, with the load of all on its links.
/// Returns none if they differ in bytes moved or in any link's load.
std::optional<cost::Transfer> add_identical(const std::vector<cost::Transfer>& transfers,
                                            const std::vector<double>& capacities) {
  cost::Transfer sum = transfers.front();
  for (std::size_t p = 0; p < sum.phases.size(); ++p)
    for (std::size_t f = 0; f < sum.phases[p].flows.size(); ++f) {
      cost::Flow& flow = sum.phases[p].flows[f];
      std::map<std::int32_t, double> loads;  // by link
      std::vector<const cost::Flow*> others;
      for (const cost::Transfer& each : transfers) {
        if (each.phases.size() != sum.phases.size() ||
            each.phases[p].delay != sum.phases[p].delay ||
            each.phases[p].flows.size() != sum.phases[p].flows.size())
          return std::nullopt;
        others.push_back(&each.phases[p].flows[f]);
        for (const cost::LinkUse& use : others.back()->uses) loads[use.link] += use.weight;
      }
      const auto place = [&](const cost::LinkUse& use) {
        return std::pair(loads.at(use.link), capacities[static_cast<std::size_t>(use.link)]);
      };
      for (const cost::Flow* other : others) {
        if (other->bytes != flow.bytes || other->most_rate != flow.most_rate ||
            !std::equal(other->uses.begin(), other->uses.end(), flow.uses.begin(), flow.uses.end(),
                        [&](const cost::LinkUse& a, const cost::LinkUse& b) {
                          return a.weight == b.weight && place(a) == place(b);
                        }))
          return std::nullopt;
      }
      for (cost::LinkUse& use : flow.uses) {
        const auto named =
            std::count_if(others.front()->uses.begin(), others.front()->uses.end(),
                          [&](const cost::LinkUse& each) { return each.link == use.link; });
        use.weight = loads.at(use.link) / static_cast<double>(named);
      }
    }
  return sum;
}

class Layout {
 public:
  Layout(const Program& program, const cost::CostModel& cost, const StandIns* stand_ins)
      : program_(program),
        cost_(cost),
        stand_ins_(stand_ins),
        capacities_(cost.link_capacities()),
        by_group_(program.groups.size()),
        members_(program.groups.size()) {}

  Result<ProgramTasks> run() {
    for (std::size_t link = 0; link < capacities_.size(); ++link)
      if (!(capacities_[link] > 0) || std::isinf(capacities_[link]))
        return runtime_error("simulate.cost",
                             fmt::format("link {}: the cost model says {} bytes/s, wanted above 0",
                                         link, capacities_[link]));
    find_pairs();
    const std::size_t lanes = 2 * program_.devices.size() + result_.pairs.size();
    for (std::size_t lane = 0; lane < lanes; ++lane) builder_.add_lane();
    for (const program::DeviceProgram& device : program_.devices) names_.push_back(device.device);
    for (std::size_t rank = 0; rank < program_.devices.size(); ++rank)
      MOTLEY_RETURN_IF_ERROR(lay_out_device(rank));
    for (const Joint& joint : joints_)
      if (joint.absent > 0) return missing_partner(joint);
    settle_transfers();
    builder_.set_links(std::move(capacities_));
    result_.graph = std::move(builder_).build();
    return std::move(result_);
  }

 private:
  void find_pairs() {
    std::set<ProgramTasks::Pair> pairs;
    for (std::size_t rank = 0; rank < program_.devices.size(); ++rank)
      for (const Instruction& instruction : program_.devices[rank].instructions)
        if (instruction.lane == Lane::kPeer) pairs.insert(pair_of(rank, instruction));
    result_.pairs.assign(pairs.begin(), pairs.end());
    by_pair_.resize(result_.pairs.size());
  }

  static ProgramTasks::Pair pair_of(std::size_t rank, const Instruction& instruction) {
    const Rank own(static_cast<std::int64_t>(rank)), peer = program::peer_of(instruction);
    return instruction.op == program::kSend ? ProgramTasks::Pair{own, peer}
                                            : ProgramTasks::Pair{peer, own};
  }

  std::size_t find_pair(const ProgramTasks::Pair& pair) const {
    return static_cast<std::size_t>(
        std::lower_bound(result_.pairs.begin(), result_.pairs.end(), pair) - result_.pairs.begin());
  }

  LaneId lane_of_pair(std::size_t pair) const {
    return LaneId(static_cast<std::int64_t>(2 * program_.devices.size() + pair));
  }

  Result<void> lay_out_device(std::size_t rank) {
    const program::DeviceProgram& device = program_.devices[rank];
    MOTLEY_ASSIGN(cost::CostModel::Times priced, cost_.times(device));
    const std::vector<Seconds>& times = priced.seconds;
    result_.scratch.push_back(std::move(priced.scratch));
    MOTLEY_CHECK(times.size() == device.instructions.size());
    MOTLEY_ASSIGN(const double interference, slow_compute(rank));
    std::vector<TaskId>& tasks = result_.tasks.emplace_back();
    tasks.reserve(times.size());
    group_counts_.assign(program_.groups.size(), 0);
    for (std::size_t i = 0; i < times.size(); ++i) {
      const Instruction& instruction = device.instructions[i];
      if (!is_possible(times[i])) return not_possible(times[i], place(program_, rank, i));
      if (program::is_exchange(instruction)) {
        MOTLEY_ASSIGN(const TaskId task, lay_out_exchange(rank, i));
        tasks.push_back(task);
      } else {
        const Nanoseconds duration = to_nanoseconds(times[i]);
        result_.most_ns += static_cast<double>(duration) * (1 + interference);
        tasks.push_back(builder_.add(lane_of(rank, instruction.lane), duration));
      }
      for (const InstructionId wait : instruction.waits)
        builder_.depend(tasks[i], tasks[wait.index()]);
    }
    return {};
  }

  /// Makes a device's transfers slow its compute; returns the factor.
  Result<double> slow_compute(std::size_t rank) {
    const std::vector<std::string>& all = stand_ins_ == nullptr ? names_ : stand_ins_->devices;
    if (all.size() < 2) return 0.0;
    const double factor = cost_.interference(names_[rank], all);
    if (!(factor >= 0 && factor <= kMostInterference))
      return runtime_error("simulate.cost",
                           fmt::format("{}: the cost model says that communication slows it by {}, "
                                       "wanted 0 to {}",
                                       names_[rank], factor, kMostInterference));
    if (factor > 0)
      builder_.slow(lane_of(rank, Lane::kCompute), lane_of(rank, Lane::kTransfer), factor);
    return factor;
  }

  /// Returns the next task of the group or pair of ranks: new, or made by a partner.
  Result<TaskId> lay_out_exchange(std::size_t rank, std::size_t i) {
    const Instruction& instruction = program_.devices[rank].instructions[i];
    const bool is_pair = instruction.group.is_none();
    const LaneId lane = is_pair ? lane_of_pair(find_pair(pair_of(rank, instruction)))
                                : lane_of(rank, instruction.lane);
    auto [joints, number, partners] = next_place(rank, instruction);
    if (number < joints.size()) {
      Joint& joint = joints_[static_cast<std::size_t>(joints[number])];
      if (!is_pair) builder_.join(joint.task, lane);
      --joint.absent;
      return joint.task;
    }
    MOTLEY_ASSIGN(const std::int32_t price, find_price(rank, instruction));
    joints.push_back(static_cast<std::int32_t>(joints_.size()));
    joints_.push_back({builder_.add(lane, Nanoseconds{0}), rank, i, partners - 1, price});
    return joints_.back().task;
  }

  /// The exchanges of a group or pair so far, and the number of a rank's next one.
  struct Place {
    std::vector<std::int32_t>& joints;
    std::size_t number, partners;
  };

  Place next_place(std::size_t rank, const Instruction& instruction) {
    if (!instruction.group.is_none()) {
      const std::size_t g = instruction.group.index();
      return {by_group_[g], group_counts_[g]++, program_.groups[g].members.size()};
    }
    Pair& pair = by_pair_[find_pair(pair_of(rank, instruction))];
    return {pair.joints, instruction.op == program::kSend ? pair.sends++ : pair.receives++, 2};
  }

  /// The inputs of an exchange's price; identical ones are priced once.
  struct Exchange {
    std::string op;
    std::int64_t bytes;
    GroupId group;        // or
    Rank source, target;  // of a send
    Lane lane;
    std::vector<Bytes> parts;
    auto operator<=>(const Exchange&) const = default;
  };

  struct Price {
    cost::Transfer transfer;
    double most_ns = 0;
    std::vector<std::int32_t> lanes;  // occupied lanes, ascending
    bool is_beside_others = false;    // shares a link with exchanges it stands for
  };

  Result<std::int32_t> find_price(std::size_t rank, const Instruction& instruction) {
    Exchange key{instruction.full_name(),
                 most_bytes(rank, instruction),
                 instruction.group,
                 Rank(),
                 Rank(),
                 instruction.lane,
                 program::uneven_parts(program_.devices[rank], instruction)};
    if (instruction.group.is_none()) {
      key.op = program::kSend;
      const ProgramTasks::Pair pair = pair_of(rank, instruction);
      key.source = pair.source;
      key.target = pair.target;
    }
    const auto next = static_cast<std::int32_t>(prices_.size());
    const auto [found, is_new] = price_of_.try_emplace(key, next);
    if (is_new) {
      Price price;
      MOTLEY_RETURN_IF_ERROR(find_transfer(key, price));
      MOTLEY_ASSIGN(price.most_ns, TransferCheck(capacities_).most_ns(price.transfer, key.op));
      price.lanes = lanes_of(key);
      prices_.push_back(std::move(price));
    }
    const std::int32_t place = found->second;
    result_.most_ns += prices_[static_cast<std::size_t>(place)].most_ns;
    return place;
  }

  Result<void> find_transfer(const Exchange& key, Price& price) {
    const cost::ExchangeSize size{Bytes(key.bytes), key.parts};
    MOTLEY_ASSIGN(price.transfer, cost_.transfer(key.op, size, device_names(key)));
    if (stand_ins_ == nullptr) return {};
    std::vector<cost::Transfer> all{price.transfer};
    for (const std::vector<std::string>& names : others_like(key)) {
      MOTLEY_ASSIGN(cost::Transfer other, cost_.transfer(key.op, size, names));
      all.push_back(std::move(other));
    }
    if (all.size() == 1) return {};
    const auto sum = add_identical(all, capacities_);
    if (!sum)
      return runtime_error("simulate.unlike",
                           fmt::format("{}: devices do not exchange as those do that stand for "
                                       "them",
                                       key.op));
    price.is_beside_others = *sum != price.transfer;
    price.transfer = *sum;
    return {};
  }

  /// Returns the other sets of devices that an exchange stands for.
  std::vector<std::vector<std::string>> others_like(const Exchange& key) const {
    std::vector<Rank> ranks{key.source, key.target};
    if (!key.group.is_none()) {
      ranks = program_.groups[key.group.index()].members;
      // Identical devices that are members of the same group.
      if (stand_ins_->groups[key.group.index()].size() > ranks.size()) return {};
    }
    std::vector<std::vector<std::string>> sets;
    for (std::size_t i = 1; i < stand_ins_->identical[ranks.front().index()].size(); ++i) {
      std::vector<std::string>& names = sets.emplace_back();
      for (const Rank rank : ranks) names.push_back(stand_ins_->identical[rank.index()].at(i));
    }
    return sets;
  }

  std::vector<std::int32_t> lanes_of(const Exchange& exchange) const {
    if (exchange.group.is_none())
      return {lane_of_pair(find_pair({exchange.source, exchange.target})).value};
    std::vector<std::int32_t> lanes;
    for (const Rank rank : program_.groups[exchange.group.index()].members)
      lanes.push_back(lane_of(rank.index(), exchange.lane).value);
    std::sort(lanes.begin(), lanes.end());
    return lanes;
  }

  /// Finds, for each link, whether exchanges without a common lane use it.
  std::vector<bool> find_shared_links() const {
    std::vector<std::optional<std::vector<std::int32_t>>> common(capacities_.size());
    for (const Price& price : prices_)
      for_each_link(price.transfer, [&](std::size_t link) {
        if (price.is_beside_others) common[link].emplace();
        if (!common[link]) common[link] = price.lanes;
        std::vector<std::int32_t> both;
        std::set_intersection(common[link]->begin(), common[link]->end(), price.lanes.begin(),
                              price.lanes.end(), std::back_inserter(both));
        common[link] = std::move(both);
      });
    std::vector<bool> shared;
    for (const auto& lanes : common) shared.push_back(lanes && lanes->empty());
    return shared;
  }

  /// Makes flows only where links are shared, or where several of one phase may slow each other.
  void settle_transfers() {
    const std::vector<bool> shared = find_shared_links();
    std::vector<TransferId> transfers;
    for (Price& price : prices_) {
      bool has_flows =
          std::any_of(price.transfer.phases.begin(), price.transfer.phases.end(),
                      [](const cost::TransferPhase& phase) { return phase.flows.size() > 1; });
      for_each_link(price.transfer,
                    [&](std::size_t link) { has_flows = has_flows || shared[link]; });
      if (!has_flows) price.transfer = {{{isolated_time(price.transfer, capacities_), {}}}};
      transfers.push_back(builder_.add_transfer(std::move(price.transfer)));
    }
    for (const Joint& joint : joints_)
      builder_.set_transfer(joint.task, transfers[static_cast<std::size_t>(joint.price)]);
  }

  template <typename Visit>
  static void for_each_link(const cost::Transfer& transfer, const Visit& visit) {
    for (const cost::TransferPhase& phase : transfer.phases)
      for (const cost::Flow& flow : phase.flows)
        for (const cost::LinkUse& use : flow.uses) visit(static_cast<std::size_t>(use.link));
  }

  /// Returns the largest bytes over members, which differ only in an all-to-all.
  std::int64_t most_bytes(std::size_t rank, const Instruction& instruction) {
    std::int64_t most = program::priced_bytes(program_.devices[rank], instruction).value;
    if (instruction.op != program::kAllToAll) return most;
    const std::size_t number = group_counts_[instruction.group.index()];  // including this one
    for (const Rank member : program_.groups[instruction.group.index()].members) {
      const program::DeviceProgram& device = program_.devices[member.index()];
      if (const Instruction* theirs = find_collective(device, instruction.group, number))
        most = std::max(most, program::priced_bytes(device, *theirs).value);
    }
    return most;
  }

  /// Returns the number-th instruction of a group, counted from 1; null: none.
  const Instruction* find_collective(const program::DeviceProgram& device, GroupId group,
                                     std::size_t number) {
    auto [found, is_new] = collectives_.try_emplace({&device, group});
    if (is_new)
      for (const Instruction& instruction : device.instructions)
        if (instruction.group == group) found->second.push_back(&instruction);
    return number <= found->second.size() ? found->second[number - 1] : nullptr;
  }

  std::vector<std::string> device_names(const Exchange& exchange) {
    const auto name = [&](Rank rank) { return program_.devices[rank.index()].device; };
    if (exchange.group.is_none()) return {name(exchange.source), name(exchange.target)};
    if (stand_ins_ != nullptr) return stand_ins_->groups[exchange.group.index()];
    std::vector<std::string>& names = members_[exchange.group.index()];
    if (names.empty())
      for (const Rank rank : program_.groups[exchange.group.index()].members)
        names.push_back(name(rank));
    return names;
  }

  tl::unexpected<Error> missing_partner(const Joint& joint) const {
    const Instruction& instruction = program_.devices[joint.rank].instructions[joint.instruction];
    const bool is_group = !instruction.group.is_none();
    std::size_t missing = program::peer_of(instruction).index();
    if (is_group) {
      const auto count = [&](std::size_t rank, std::size_t end) {
        const auto& instructions = program_.devices[rank].instructions;
        std::size_t found = 0;
        for (std::size_t i = 0; i < std::min(end, instructions.size()); ++i)
          found += instructions[i].group == instruction.group ? 1 : 0;
        return found;
      };
      const std::size_t wanted = count(joint.rank, joint.instruction + 1);
      for (const Rank rank : program_.groups[instruction.group.index()].members) {
        missing = rank.index();
        if (count(missing, SIZE_MAX) < wanted) break;
      }
    }
    return runtime_error(
        "simulate.deadlock",
        fmt::format("deadlock: {} waits in ^{} {} for {}, which has no such instruction left; {}",
                    program_.devices[joint.rank].device, joint.instruction, instruction.full_name(),
                    program_.devices[missing].device, is_group ? kOneOrder : kBothSides));
  }

  /// Sends from one rank to another, by number.
  struct Pair {
    std::vector<std::int32_t> joints;
    std::size_t sends = 0, receives = 0;
  };

  const Program& program_;
  const cost::CostModel& cost_;
  const StandIns* const stand_ins_;
  std::vector<double> capacities_;
  std::vector<std::string> names_;  // of all devices, by rank
  TaskGraphBuilder builder_;
  ProgramTasks result_;
  std::vector<Joint> joints_;
  std::vector<std::vector<std::int32_t>> by_group_;  // joints of a group, by number
  std::vector<Pair> by_pair_;                        // as result_.pairs
  std::vector<std::size_t> group_counts_;            // of this rank, so far
  std::vector<std::vector<std::string>> members_;    // device names of a group
  std::map<Exchange, std::int32_t> price_of_;
  std::vector<Price> prices_;
  std::map<std::pair<const program::DeviceProgram*, GroupId>, std::vector<const Instruction*>>
      collectives_;  // cache, by number
};

}  // namespace

Result<ProgramTasks> lay_out_program(const Program& program, const cost::CostModel& cost,
                                     const StandIns* stand_ins) {
  return Layout(program, cost, stand_ins).run();
}

Result<void> check_steps(const ProgramTasks& step, int steps, double factor) {
  const TaskGraph& graph = step.graph;
  const auto size = static_cast<std::int64_t>(graph.lane_tasks.size() + graph.dependencies.size());
  if (steps > 0 && size > INT32_MAX / 2 / steps)
    return usage_error("simulate.size",
                       fmt::format("{} steps of {} instructions are too many to simulate at once",
                                   steps, graph.tasks()));
  const double most = step.most_ns * factor * steps;
  if (steps > 0 && !(most <= kMostTotal))
    return usage_error("simulate.size",
                       fmt::format("the instructions may take {:.3g} s together, wanted at most "
                                   "{:.3g}",
                                   most / 1e9, kMostTotal / 1e9));
  return {};
}

TaskGraph repeat_steps(const ProgramTasks& step, int steps) {
  std::vector<LaneOwners> owners;
  for (std::size_t rank = 0; rank < step.tasks.size(); ++rank)
    owners.insert(owners.end(), 2, {static_cast<std::int32_t>(rank)});
  for (const auto& [source, target] : step.pairs) owners.push_back({source.value, target.value});
  return repeat(step.graph, steps, owners);
}

Error deadlock_error(const Program& program, const ProgramTasks& tasks, const Deadlock& deadlock) {
  bool has_collective = false;
  const std::size_t of_devices = 2 * program.devices.size();
  const auto rank_of = [&](LaneId lane) {
    return lane.index() < of_devices ? lane.index() / 2
                                     : tasks.pairs[lane.index() - of_devices].source.index();
  };
  const auto name_of = [&](LaneId lane) {
    const std::string& name = program.devices[rank_of(lane)].device;
    if (lane.index() < of_devices) return name;
    const Rank target = tasks.pairs[lane.index() - of_devices].target;
    return fmt::format("the strand from {} to {}", name, program.devices[target.index()].device);
  };
  const auto instruction_of = [&](LaneId lane, TaskId task) {
    const auto& row = tasks.tasks[rank_of(lane)];
    const TaskId in_step(task.value % static_cast<std::int32_t>(tasks.graph.tasks()));
    return static_cast<std::size_t>(std::find(row.begin(), row.end(), in_step) - row.begin());
  };
  const std::string text = describe_deadlock(deadlock, name_of, [&](LaneId lane, TaskId task) {
    const std::size_t i = instruction_of(lane, task);
    const Instruction& instruction = program.devices[rank_of(lane)].instructions[i];
    has_collective = has_collective || !instruction.group.is_none();
    return fmt::format("^{} {}", i, instruction.full_name());
  });
  return {ErrorKind::kRuntime, "simulate.deadlock",
          fmt::format("{}; {}", text, has_collective ? kOneOrder : kBothSides)};
}

}  // namespace motley::simulate
