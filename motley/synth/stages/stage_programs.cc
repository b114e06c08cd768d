#include "motley/synth/stages/stage_programs.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "motley/program/effects.h"

namespace motley::synth {
namespace {

/// How many tasks of a device ahead a receive may begin, and how many later a send is waited for.
/// It bounds what arrives early, as `ahead` of the sender does, too: with few, whoever makes
/// messages faster than a link takes them waits for each (with two, Llama of 1.1 billion weights
/// over 25 Gbit/s takes 0.950 s in place of 0.809, OPT of 1.3 over 10 Gbit/s 2.98 in place
/// of 2.51).
constexpr std::size_t kTasksAhead = 8;

/// The program of each rank without buffers and instructions: samples where any of its stages reads
/// them.
std::vector<program::DeviceProgram> begin_programs(const ShardedStages& stages) {
  std::vector<program::DeviceProgram> programs;
  for (const std::string& name : stages.names) programs.push_back({name});
  const std::vector<plan::Stretch>& replicas = stages.step.passes.replicas;
  std::vector<std::size_t> replica_of(programs.size());
  for (const Seat& seat : stages.seats)
    replica_of[seat.rank] = stages.step.stages[seat.stage].replica;
  for (const Seat& seat : stages.seats) {
    if (values_with_role(stages.graph_of(seat), graph::ValueRole::kInput).empty()) continue;
    programs[seat.rank].samples = replicas[replica_of[seat.rank]].count;
    programs[seat.rank].first_sample = replicas[replica_of[seat.rank]].first;
  }
  return programs;
}

}  // namespace

StagePrograms::StagePrograms(ShardedStages& stages, std::vector<program::Group> groups,
                             std::vector<IdenticalRanks::StandIn> identical)
    : stages_(stages),
      groups_(std::move(groups)),
      identical_(std::move(identical)),
      numbers_(stages.names.size()) {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    std::vector<std::size_t> ranks;
    for (const Rank rank : groups_[g].members) ranks.push_back(rank.index());
    group_ids_.emplace(std::move(ranks), GroupId(g));
  }
  for (std::size_t i = 0; i < identical_.size(); ++i)
    numbers_[identical_[i].ranks.front()] = Rank(i);
  for (std::size_t rank = 0; rank < numbers_.size(); ++rank)
    if (is_lowered(rank)) lowered_.push_back(rank);
  for (const Seat& seat : stages.seats)
    if (is_lowered(seat.rank)) seats_.push_back(seat);
  open_devices();
}

void StagePrograms::open_devices() {
  for (program::DeviceProgram& each : begin_programs(stages_))
    devices_.emplace_back(std::move(each));
  std::vector<std::size_t> operators(ranks(), 0);
  for (const Seat& seat : seats_) operators[seat.rank] += stages_.graph_of(seat).ops.size();
  for (const std::size_t rank : lowered_) builder(rank).reserve(operators[rank] * 9 / 8);
  for (const Seat& seat : stages_.seats) {
    ShardedStage& stage = stages_.stages[seat.stage];
    const std::vector<std::size_t>& members = stages_.step.stages[seat.stage].ranks;
    const GroupId group = members.size() > 1 ? group_of(members) : GroupId(0);
    places_.emplace_back(*stage.parts, seat.member);
    steps_.emplace_back(*stage.step, places_.back(), builder(seat.rank), group);
    writers_.emplace_back(steps_.back());
  }
}

GroupId StagePrograms::group_of(const std::vector<std::size_t>& ranks) {
  const GroupId next(groups_.size());
  const auto [known, is_new] = group_ids_.try_emplace(ranks, next);
  if (is_new) {
    program::Group& group = groups_.emplace_back();
    for (const std::size_t rank : ranks) group.members.emplace_back(rank);
  }
  return known->second;
}

void StagePrograms::all_reduce(std::size_t rank, BufferId buffer, const std::string& label) {
  if (ranks() == 1) return;
  std::vector<std::size_t> all(ranks());
  std::iota(all.begin(), all.end(), std::size_t{0});
  builder(rank).use_group(group_of(all));
  builder(rank).all_reduce(buffer, label);
}

void StagePrograms::enter(std::size_t rank, std::int64_t task) {
  DeviceState& here = devices_[rank];
  if (here.task == task) return;
  if (here.task >= 0) here.task_ends.push_back(here.builder.last_computed());
  here.task = task;
  while (!here.sends.empty() && here.sends.front().first + kTasksAhead <= here.task_ends.size()) {
    here.builder.wait_for(here.sends.front().second);
    here.sends.pop_front();
  }
}

void StagePrograms::await_first(std::size_t rank) {
  devices_[rank].first_bytes.clear();
  for (const InstructionId send : std::exchange(devices_[rank].first_sends, {}))
    builder(rank).wait_for(send);
}

void StagePrograms::await_kept(std::size_t rank) {
  for (const InstructionId send : devices_[rank].kept_sends) builder(rank).wait_for(send);
}

BufferId StagePrograms::transfer(std::size_t sender, std::size_t receiver, BufferId sent,
                                 Shape shape, const std::string& label) {
  DeviceState& out = devices_[sender];
  DeviceState& in = devices_[receiver];
  const DType dtype = out.builder.buffer(sent).dtype;
  note_send(out, receiver, sent, out.builder.send(sent, numbers_[receiver], label));
  const InstructionId after = in.task_ends.size() < kTasksAhead
                                  ? InstructionId()
                                  : in.task_ends[in.task_ends.size() - kTasksAhead];
  return in.builder.receive(numbers_[sender], dtype, std::move(shape), after, label);
}

/// What was sent kTasksAhead tasks ago has arrived, or is waited for. But what a step passes on
/// once may take much longer, and what is small waits behind it: that is there when gradients come
/// back.
void StagePrograms::note_send(DeviceState& device, std::size_t receiver, BufferId sent,
                              InstructionId send) {
  const program::Buffer& buffer = device.builder.buffer(sent);
  const BufferId root = buffer.view_of.is_none() ? sent : buffer.view_of;
  const std::int64_t bytes = buffer.elements() * dtype_size(buffer.dtype);
  const auto first = device.first_bytes.find(receiver);
  if (program::is_persistent(device.builder.buffer(root).kind)) {
    device.kept_sends.push_back(send);
  } else if (device.task == 0) {
    device.first_sends.push_back(send);
    device.first_bytes[receiver] = std::max(device.first_bytes[receiver], bytes);
  } else if (first != device.first_bytes.end() && bytes < first->second) {
    device.first_sends.push_back(send);
  } else {
    device.sends.emplace_back(device.task_ends.size(), send);
  }
}

bool StagePrograms::are_identical() const {
  std::vector<std::size_t> by(ranks());  // by rank, who stands for it
  for (const IdenticalRanks::StandIn& each : identical_)
    for (const std::size_t rank : each.ranks) by[rank] = each.ranks.front();
  return std::all_of(stages_.seats.begin(), stages_.seats.end(), [&](const Seat& seat) {
    const std::vector<std::size_t>& members = stages_.step.stages[seat.stage].ranks;
    const auto member = std::find(members.begin(), members.end(), by[seat.rank]) - members.begin();
    return places_[stages_.first_seat[seat.stage] + static_cast<std::size_t>(member)]
        .answers_identical(seat.member, Place::Identical::kTimes);
  });
}

std::vector<std::vector<std::size_t>> StagePrograms::all_of_groups() const {
  std::vector<std::vector<std::size_t>> found;
  for (const program::Group& group : groups_) {
    std::set<std::size_t> meant, sets, all;
    for (const Rank rank : group.members) {
      all.insert(rank.index());
      if (!is_lowered(rank.index())) continue;
      const IdenticalRanks::StandIn& identical = identical_[numbers_[rank.index()].index()];
      sets.insert(identical.set);
      meant.insert(identical.ranks.begin(), identical.ranks.end());
    }
    if (sets.size() > 1) all.insert(meant.begin(), meant.end());
    found.emplace_back(all.begin(), all.end());
  }
  return found;
}

program::Program StagePrograms::put_together() {
  program::Program program;
  for (const IdenticalRanks::StandIn& each : identical_)
    program.devices.push_back(builder(each.ranks.front()).finish());
  for (const program::Group& all : groups_) {
    program::Group& group = program.groups.emplace_back();
    for (const Rank rank : all.members)
      if (is_lowered(rank.index())) group.members.push_back(numbers_[rank.index()]);
  }
  return program;
}

}  // namespace motley::synth
