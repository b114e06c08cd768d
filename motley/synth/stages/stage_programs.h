#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "motley/synth/ranks/lower_rank.h"
#include "motley/synth/stages/identical_ranks.h"
#include "motley/synth/stages/sharded_stages.h"

namespace motley::synth {

/// The programs of a step in stages while they are written: of each device one, to which the stages
/// that it has a seat in write, or none where another device stands for it.
///
/// What a device sends stays in its memory until that is over, which it waits for some tasks later;
/// as much later as a receive may begin before its task.
class StagePrograms {
 public:
  /// `groups` keep their numbers, `identical` are the devices that programs are of. The stages must
  /// outlive it.
  StagePrograms(ShardedStages& stages, std::vector<program::Group> groups,
                std::vector<IdenticalRanks::StandIn> identical);

  std::size_t ranks() const { return devices_.size(); }
  /// Is a program of the rank's own written?
  bool is_lowered(std::size_t rank) const { return !numbers_[rank].is_none(); }
  const std::vector<std::size_t>& lowered() const { return lowered_; }
  /// Those of lowered ranks, stage by stage.
  const std::vector<Seat>& seats() const { return seats_; }
  ProgramBuilder& builder(std::size_t rank) { return devices_[rank].builder; }
  RankStep& step(std::size_t stage, std::size_t member) {
    return steps_[stages_.first_seat[stage] + member];
  }
  RankWriter& writer(std::size_t stage, std::size_t member) {
    return writers_[stages_.first_seat[stage] + member];
  }
  RankWriter& writer(const Seat& seat) { return writer(seat.stage, seat.member); }

  /// The group of these ranks, ascending; added where there is none.
  GroupId group_of(const std::vector<std::size_t>& ranks);
  /// A rank's part in a sum over all ranks, in place; nothing where it is alone.
  void all_reduce(std::size_t rank, BufferId buffer, const std::string& label);

  /// The rank comes to a task: waits for what it sent kTasksAhead tasks before.
  void enter(std::size_t rank, std::int64_t task);
  /// Waits for what it sent before all micro-batches, and for what is small and was sent behind
  /// that.
  void await_first(std::size_t rank);
  /// Waits for what it sent of parameters and states, which are updated next.
  void await_kept(std::size_t rank);
  /// Sends from rank to rank: what the receiver gets, of this shape.
  BufferId transfer(std::size_t sender, std::size_t receiver, BufferId sent, Shape shape,
                    const std::string& label);

  /// Would those that a rank stands for have the same parts?
  bool are_identical() const;
  /// Of what several sets have together all that they stand for take part; what one of them has
  /// among itself, the others have among themselves. By group all of its ranks.
  std::vector<std::vector<std::size_t>> all_of_groups() const;
  /// The finished programs. Call last.
  program::Program put_together();

 private:
  struct DeviceState {
    explicit DeviceState(program::DeviceProgram start) : builder(std::move(start)) {}
    ProgramBuilder builder;
    std::int64_t task = -1;
    std::vector<InstructionId> task_ends;  // last compute instruction of each task
    std::deque<std::pair<std::size_t, InstructionId>> sends;  // by number of the task: not awaited
    std::vector<InstructionId> first_sends;  // of what comes before micro-batches, and behind it
    std::map<std::size_t, std::int64_t> first_bytes;  // of these, by receiver: the largest
    std::vector<InstructionId> kept_sends;            // of what updates write
  };

  void open_devices();
  void note_send(DeviceState& device, std::size_t receiver, BufferId sent, InstructionId send);

  ShardedStages& stages_;
  std::vector<program::Group> groups_;
  std::map<std::vector<std::size_t>, GroupId> group_ids_;
  std::vector<IdenticalRanks::StandIn> identical_;  // by device of the program
  std::vector<Rank> numbers_;                       // by rank, its device; none: another one's
  std::vector<std::size_t> lowered_;
  std::vector<Seat> seats_;
  std::deque<DeviceState> devices_;  // by rank
  std::deque<Place> places_;         // by seat of all, as what follows
  std::deque<RankStep> steps_;
  std::deque<RankWriter> writers_;
};

}  // namespace motley::synth
