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

/// The programs of a step in stages while they are written, one per device that no other stands
/// for. A device waits for its sends some tasks later, as many as a receive may begin before its
/// task.
class StagePrograms {
 public:
  /// `groups` keep their numbers; `identical`: by device of the program. The stages must outlive
  /// it.
  StagePrograms(ShardedStages& stages, std::vector<program::Group> groups,
                std::vector<IdenticalRanks::StandIn> identical);

  std::size_t ranks() const { return devices_.size(); }
  /// Is a program of the rank's own written?
  bool is_lowered(std::size_t rank) const { return !numbers_[rank].is_none(); }
  const std::vector<std::size_t>& lowered() const { return lowered_; }
  /// Returns the seats of lowered ranks, stage by stage.
  const std::vector<Seat>& seats() const { return seats_; }
  ProgramBuilder& builder(std::size_t rank) { return devices_[rank].builder; }
  RankStep& step(std::size_t stage, std::size_t member) {
    return steps_[stages_.first_seat[stage] + member];
  }
  RankWriter& writer(std::size_t stage, std::size_t member) {
    return writers_[stages_.first_seat[stage] + member];
  }
  RankWriter& writer(const Seat& seat) { return writer(seat.stage, seat.member); }

  /// Returns the group of these ranks, ascending; adds it where there is none.
  GroupId group_of(const std::vector<std::size_t>& ranks);
  /// Appends a rank's part in a sum over all ranks, in place; nothing for one rank.
  void all_reduce(std::size_t rank, BufferId buffer, const std::string& label);

  /// Begins a task: waits for sends of kTasksAhead tasks before.
  void enter(std::size_t rank, std::int64_t task);
  /// Waits for sends before all micro-batches, and for smaller ones behind them.
  void await_first(std::size_t rank);
  /// Waits for sends of parameters and states, which are updated next.
  void await_kept(std::size_t rank);
  /// Sends from rank to rank; returns the receiver's buffer of this shape.
  BufferId transfer(std::size_t sender, std::size_t receiver, BufferId sent, Shape shape,
                    const std::string& label);

  /// Would those that a rank stands for have the same parts?
  bool are_identical() const;
  /// Returns all ranks of each group: those that its members stand for take part if it has several
  /// sets; the groups of one set stand for others of their own.
  std::vector<std::vector<std::size_t>> all_of_groups() const;
  /// Returns the finished programs. Call last.
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
