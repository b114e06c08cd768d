#include "motley/simulate/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <utility>

#include "motley/base/check.h"
#include "motley/program/memory.h"

namespace motley::simulate {
namespace {

using program::Instruction;
using program::Program;
using trace::Nanoseconds;

constexpr Nanoseconds kNotFinished = -1;
constexpr double kMostSeconds = 1e6;

Result<Nanoseconds> to_nanoseconds(Seconds seconds, const std::string& what) {
  if (!(seconds.value >= 0 && seconds.value <= kMostSeconds))
    return runtime_error("simulate.cost",
                         fmt::format("{}: the cost model says {} s, wanted 0 to {}", what,
                                     seconds.value, kMostSeconds));
  return static_cast<Nanoseconds>(std::llround(seconds.value * 1e9));
}

/// One collective of a group: the same instruction on every member, and who has reached it.
struct Collective {
  Nanoseconds duration = 0;
  std::int64_t bytes = 0;
  std::vector<std::int32_t> instructions;  // by position in the group; -1: this member has none
  std::size_t arrived = 0;
  Nanoseconds latest = 0;
};

/// What a lane is doing.
struct LaneState {
  std::vector<std::int32_t> order;  // its instructions
  std::size_t next = 0;
  Nanoseconds free_at = 0;
  std::int32_t waits_for = -1;  // instruction of the other lane, when blocked
  bool in_collective = false;
  bool is_done = false;  // with its part of the step
  std::vector<trace::Interval> intervals;
};

/// What the inner loop needs of a device, flat.
struct DeviceState {
  std::vector<Nanoseconds> durations;
  std::vector<std::int32_t> wait_begin, waits;  // waits of instruction i: [begin[i], begin[i + 1])
  std::vector<std::int32_t> collective;         // by instruction; -1: none
  std::vector<Nanoseconds> finished;            // by instruction, of the current step
  std::array<LaneState, 2> lanes;
  std::int64_t step = 0;
  Nanoseconds step_began = 0;
  std::int64_t peak_bytes = 0;
};

class Simulation {
 public:
  Simulation(const Program& program, const cost::CostModel& cost, std::int64_t steps)
      : program_(program), cost_(cost), steps_(steps), devices_(program.devices.size()) {}

  Result<trace::Trace> run() {
    for (std::size_t rank = 0; rank < devices_.size(); ++rank)
      MOTLEY_RETURN_IF_ERROR(prepare_device(rank));
    MOTLEY_RETURN_IF_ERROR(prepare_collectives());
    for (std::size_t rank = devices_.size(); rank-- > 0;) begin_step(rank);
    while (!ready_.empty()) {
      const auto [rank, lane] = ready_.back();
      ready_.pop_back();
      advance(rank, lane);
    }
    for (std::size_t rank = 0; rank < devices_.size(); ++rank)
      if (devices_[rank].step < steps_) return deadlock(rank);
    return make_trace();
  }

 private:
  // ---- preparation

  Result<void> prepare_device(std::size_t rank) {
    const program::DeviceProgram& source = program_.devices[rank];
    DeviceState& device = devices_[rank];
    MOTLEY_ASSIGN(const std::vector<Seconds> times, cost_.compute_times(source));
    MOTLEY_CHECK(times.size() == source.instructions.size());
    device.wait_begin.push_back(0);
    for (std::size_t i = 0; i < times.size(); ++i) {
      const Instruction& instruction = source.instructions[i];
      MOTLEY_ASSIGN(const Nanoseconds duration,
                    to_nanoseconds(times[i], fmt::format("{} ^{} {}", source.device, i,
                                                         instruction.full_name())));
      device.durations.push_back(duration);
      for (const InstructionId wait : instruction.waits) device.waits.push_back(wait.value);
      device.wait_begin.push_back(static_cast<std::int32_t>(device.waits.size()));
      device.lanes[static_cast<std::size_t>(instruction.lane)].order.push_back(
          static_cast<std::int32_t>(i));
    }
    device.collective.assign(times.size(), -1);
    device.peak_bytes = program::find_memory_peak(source).total.value;
    for (LaneState& lane : device.lanes)
      lane.intervals.reserve(lane.order.size() * static_cast<std::size_t>(steps_));
    return {};
  }

  /// The n-th collective of a group on one member is the n-th on all.
  Result<void> prepare_collectives() {
    std::vector<std::vector<std::int32_t>> by_group(program_.groups.size());
    std::vector<std::vector<Seat>> seats(devices_.size());
    for (std::size_t g = 0; g < program_.groups.size(); ++g)
      for (std::size_t m = 0; m < program_.groups[g].members.size(); ++m)
        seats[program_.groups[g].members[m].index()].push_back({g, m});
    for (std::size_t rank = 0; rank < devices_.size(); ++rank)
      add_collectives(rank, seats[rank], by_group);
    for (std::size_t c = 0; c < collectives_.size(); ++c)
      MOTLEY_RETURN_IF_ERROR(price_collective(*groups_[c], collectives_[c]));
    return {};
  }

  /// A device's position in a group.
  struct Seat {
    std::size_t group, member;
  };

  void add_collectives(std::size_t rank, const std::vector<Seat>& seats,
                       std::vector<std::vector<std::int32_t>>& by_group) {
    std::vector<std::size_t> member(by_group.size()), count(by_group.size());
    for (const Seat& seat : seats) member[seat.group] = seat.member;
    const auto& instructions = program_.devices[rank].instructions;
    for (std::size_t i = 0; i < instructions.size(); ++i) {
      if (instructions[i].group.is_none()) continue;
      const std::size_t g = instructions[i].group.index();
      const std::size_t n = count[g]++;
      if (n == by_group[g].size()) {
        by_group[g].push_back(static_cast<std::int32_t>(collectives_.size()));
        collectives_.emplace_back().instructions.assign(program_.groups[g].members.size(), -1);
        groups_.push_back(&program_.groups[g]);
      }
      devices_[rank].collective[i] = by_group[g][n];
      collectives_[static_cast<std::size_t>(by_group[g][n])].instructions[member[g]] =
          static_cast<std::int32_t>(i);
    }
  }

  Result<void> price_collective(const program::Group& group, Collective& collective) {
    std::vector<std::string> names;
    for (const Rank rank : group.members) names.push_back(program_.devices[rank.index()].device);
    std::size_t member = 0;
    while (collective.instructions[member] < 0) ++member;
    const program::DeviceProgram& device = program_.devices[group.members[member].index()];
    const Instruction& instruction =
        device.instructions[static_cast<std::size_t>(collective.instructions[member])];
    collective.bytes = first_buffer_bytes(device, instruction);
    MOTLEY_ASSIGN(const Seconds time,
                  cost_.collective_time(instruction.op, Bytes(collective.bytes), names));
    MOTLEY_ASSIGN(collective.duration, to_nanoseconds(time, instruction.op));
    return {};
  }

  static std::int64_t first_buffer_bytes(const program::DeviceProgram& device,
                                         const Instruction& instruction) {
    BufferId first;
    program::for_each_buffer(instruction.arguments, [&](BufferId id) {
      if (first.is_none()) first = id;
    });
    return first.is_none() ? 0 : device.buffer(first).bytes().value;
  }

  // ---- the run

  void begin_step(std::size_t rank) {
    DeviceState& device = devices_[rank];
    while (device.durations.empty() && device.step < steps_) mark_step(rank);
    if (device.step == steps_) return;
    device.finished.assign(device.durations.size(), kNotFinished);
    // Taken from the back, so compute runs first.
    for (const std::size_t index : {1, 0}) {
      LaneState& lane = device.lanes[index];
      lane.next = 0;
      lane.free_at = device.step_began;
      lane.is_done = lane.order.empty();
      if (!lane.is_done) ready_.emplace_back(rank, index);
    }
  }

  void mark_step(std::size_t rank) {
    DeviceState& device = devices_[rank];
    const Nanoseconds end = std::max(device.lanes[0].free_at, device.lanes[1].free_at);
    marks_.push_back(
        {static_cast<int>(rank), device.step, device.step_began, end, device.peak_bytes});
    device.step_began = end;
    ++device.step;
  }

  /// Runs a lane until it must wait for the other lane or for another device, or the step is over.
  void advance(std::size_t rank, std::size_t lane_index) {
    DeviceState& device = devices_[rank];
    LaneState& lane = device.lanes[lane_index];
    while (lane.next < lane.order.size()) {
      const std::int32_t i = lane.order[lane.next];
      const Nanoseconds begin = find_begin(device, lane, i);
      if (begin == kNotFinished) return;
      if (const std::int32_t c = device.collective[static_cast<std::size_t>(i)]; c >= 0) {
        lane.in_collective = true;
        return arrive(collectives_[static_cast<std::size_t>(c)],
                      *groups_[static_cast<std::size_t>(c)], begin);
      }
      finish(rank, lane_index, begin, begin + device.durations[static_cast<std::size_t>(i)], 0);
    }
    lane.is_done = true;
    if (!device.lanes[1 - lane_index].is_done) return;
    mark_step(rank);
    begin_step(rank);
  }

  /// When the lane is free and all that instruction i waits for has finished; marks the lane as
  /// blocked if that is not known yet.
  static Nanoseconds find_begin(const DeviceState& device, LaneState& lane, std::int32_t i) {
    const auto index = static_cast<std::size_t>(i);
    Nanoseconds begin = lane.free_at;
    for (std::int32_t w = device.wait_begin[index]; w < device.wait_begin[index + 1]; ++w) {
      const std::int32_t wait = device.waits[static_cast<std::size_t>(w)];
      const Nanoseconds end = device.finished[static_cast<std::size_t>(wait)];
      if (end == kNotFinished) {
        lane.waits_for = wait;
        return kNotFinished;
      }
      begin = std::max(begin, end);
    }
    return begin;
  }

  void finish(std::size_t rank, std::size_t lane_index, Nanoseconds begin, Nanoseconds end,
              std::int64_t bytes) {
    DeviceState& device = devices_[rank];
    LaneState& lane = device.lanes[lane_index];
    const std::int32_t i = lane.order[lane.next++];
    device.finished[static_cast<std::size_t>(i)] = end;
    lane.free_at = end;
    lane.intervals.push_back({static_cast<int>(rank),
                              lane_index == 0 ? trace::Lane::kCompute : trace::Lane::kTransfer,
                              device.step, InstructionId(i), begin, end, bytes});
    LaneState& other = device.lanes[1 - lane_index];
    if (other.waits_for == i) {
      other.waits_for = -1;
      ready_.emplace_back(rank, 1 - lane_index);
    }
  }

  /// One more member has reached a collective; the last one makes it happen on all.
  void arrive(Collective& collective, const program::Group& group, Nanoseconds at) {
    collective.latest = std::max(collective.latest, at);
    if (++collective.arrived < group.members.size()) return;
    const Nanoseconds begin = collective.latest;
    collective.arrived = 0;
    collective.latest = 0;
    for (std::size_t member = group.members.size(); member-- > 0;) {
      const std::size_t rank = group.members[member].index();
      const auto i = static_cast<std::size_t>(collective.instructions[member]);
      const auto lane = static_cast<std::size_t>(program_.devices[rank].instructions[i].lane);
      devices_[rank].lanes[lane].in_collective = false;
      finish(rank, lane, begin, begin + collective.duration, collective.bytes);
      ready_.emplace_back(rank, lane);
    }
  }

  // ---- results

  trace::Trace make_trace() {
    trace::Trace result;
    for (std::size_t rank = 0; rank < devices_.size(); ++rank) {
      const program::DeviceProgram& source = program_.devices[rank];
      result.devices.push_back(source.device);
      std::vector<std::string>& names = result.names.emplace_back();
      names.reserve(source.instructions.size());
      for (const Instruction& instruction : source.instructions) {
        std::string& name = names.emplace_back(instruction.full_name());
        if (!instruction.label.empty()) name.append(" ").append(instruction.label);
      }
      for (LaneState& lane : devices_[rank].lanes)
        result.intervals.insert(result.intervals.end(), lane.intervals.begin(),
                                lane.intervals.end());
    }
    std::stable_sort(marks_.begin(), marks_.end(),
                     [](const auto& a, const auto& b) { return a.device < b.device; });
    result.steps = std::move(marks_);
    return result;
  }

  // ---- deadlock

  struct Place {
    std::size_t rank, lane;
    bool operator==(const Place&) const = default;
  };

  bool is_blocked(Place place) const {
    const LaneState& lane = devices_[place.rank].lanes[place.lane];
    return lane.in_collective || lane.waits_for >= 0;
  }

  std::string describe(Place place) const {
    const LaneState& lane = devices_[place.rank].lanes[place.lane];
    const auto i = static_cast<std::size_t>(lane.order[lane.next]);
    return fmt::format("waits in ^{} {} for", i,
                       program_.devices[place.rank].instructions[i].full_name());
  }

  /// The lane whose progress a member's part in a collective depends on.
  Place lane_towards(std::size_t rank, std::int32_t instruction) const {
    if (instruction >= 0) {
      const auto i = static_cast<std::size_t>(instruction);
      return {rank, static_cast<std::size_t>(program_.devices[rank].instructions[i].lane)};
    }
    return {rank, is_blocked({rank, 0}) ? std::size_t{0} : std::size_t{1}};
  }

  /// The first member that has not reached the collective in which a lane waits.
  Place absent_member(Place place) const {
    const DeviceState& device = devices_[place.rank];
    const LaneState& lane = device.lanes[place.lane];
    const auto c = static_cast<std::size_t>(
        device.collective[static_cast<std::size_t>(lane.order[lane.next])]);
    const program::Group& group = *groups_[c];
    for (std::size_t member = 0; member < group.members.size(); ++member) {
      const std::size_t rank = group.members[member].index();
      const Place other = lane_towards(rank, collectives_[c].instructions[member]);
      const LaneState& theirs = devices_[rank].lanes[other.lane];
      const bool is_there =
          theirs.in_collective && theirs.order[theirs.next] == collectives_[c].instructions[member];
      if (!is_there) return other;
    }
    return place;
  }

  /// Follows who waits for whom from a device that cannot go on until the chain closes or ends.
  tl::unexpected<Error> deadlock(std::size_t rank) const {
    Place at{rank, is_blocked({rank, 0}) ? std::size_t{0} : std::size_t{1}};
    std::vector<Place> seen;
    std::string text = fmt::format("deadlock: {} ", program_.devices[rank].device);
    while (true) {
      seen.push_back(at);
      const bool in_collective = devices_[at.rank].lanes[at.lane].in_collective;
      const Place next = in_collective ? absent_member(at) : Place{at.rank, 1 - at.lane};
      text += describe(at) + " " +
              (in_collective ? program_.devices[next.rank].device : std::string("its other lane"));
      if (std::find(seen.begin(), seen.end(), next) != seen.end()) break;
      if (!is_blocked(next)) {
        text += ", which has no such instruction left";
        break;
      }
      text += ", which ";
      at = next;
    }
    return runtime_error("simulate.deadlock",
                         text + "; all members must reach their collectives in one order");
  }

  const Program& program_;
  const cost::CostModel& cost_;
  const std::int64_t steps_;
  std::vector<DeviceState> devices_;
  std::vector<Collective> collectives_;
  std::vector<const program::Group*> groups_;               // by collective
  std::vector<std::pair<std::size_t, std::size_t>> ready_;  // lanes that can go on: rank, lane
  std::vector<trace::StepMark> marks_;
};

}  // namespace

Result<trace::Trace> simulate(const program::Program& program, const cost::CostModel& cost,
                              const SimulateOptions& options) {
  return Simulation(program, cost, std::max(0, options.steps)).run();
}

}  // namespace motley::simulate
