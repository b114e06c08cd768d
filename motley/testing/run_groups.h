#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "motley/program/parts.h"
#include "motley/program/program_text.h"
#include "motley/testing/evaluate_pass.h"
#include "motley/testing/run_ending.h"
#include "motley/testing/run_program.h"

namespace motley::testing {

/// Runs a program whose devices exchange in several groups and send to each other. Each runs its
/// instructions in order; a collective waits for its whole group, a receive for the send. Updates
/// by SGD without momentum; records norm factors and ignores them.
class GroupsRun {
 public:
  GroupsRun(const program::Program& program, const NamedTensors& given)
      : program_(program),
        next_(program.devices.size(), 0),
        ends(program.devices.size()),
        values(program.devices.size()) {
    for (std::size_t rank = 0; rank < next_.size(); ++rank) place(rank, given);
  }

  void run() {
    for (bool goes_on = true; goes_on && !::testing::Test::HasFatalFailure();) {
      goes_on = false;
      for (std::size_t rank = 0; rank < next_.size(); ++rank)
        while (!is_over(rank) && advance(rank)) goes_on = true;
    }
    for (std::size_t rank = 0; rank < next_.size(); ++rank)
      if (!is_over(rank) && !::testing::Test::HasFatalFailure())
        ADD_FAILURE() << "rank " << rank << " waits at " << next_[rank] << ", "
                      << device(rank).instructions[next_[rank]].full_name() << ", for ever";
  }

  const Tensor* find(std::size_t rank, const std::string& name) const {
    for (std::size_t b = 0; b < device(rank).buffers.size(); ++b)
      if (device(rank).buffers[b].name == name)
        return &values[rank].at(BufferId(static_cast<std::int64_t>(b)));
    return nullptr;
  }

 private:
  const program::DeviceProgram& device(std::size_t rank) const { return program_.devices[rank]; }
  bool is_over(std::size_t rank) const { return next_[rank] == device(rank).instructions.size(); }
  const program::Instruction& now(std::size_t rank) const {
    return device(rank).instructions[next_[rank]];
  }

  void place(std::size_t rank, const NamedTensors& given) {
    const program::DeviceProgram& own = device(rank);
    for (std::size_t b = 0; b < own.buffers.size(); ++b) {
      const program::Buffer& buffer = own.buffers[b];
      const BufferId id(static_cast<std::int64_t>(b));
      if (buffer.kind == program::BufferKind::kTemporary) continue;
      if (buffer.kind == program::BufferKind::kState) {
        values[rank][id] = filled(buffer.shape, 0);
        continue;
      }
      Tensor& here = values[rank][id] = ProgramRun::part_of(given.at(buffer.name), buffer);
      if (buffer.kind != program::BufferKind::kInput) continue;
      const std::int64_t rows = here.shape[0], width = count_of(here.shape) / rows;
      here = {buffer.shape, rows_of(here.at, {1, rows, width}, own.first_sample, own.samples)};
    }
  }

  /// Runs the next instruction if possible.
  bool advance(std::size_t rank) {
    const program::Instruction& each = now(rank);
    if (program::is_collective(each.op)) return exchange(each.group);
    if (each.op == program::kReceive) {
      std::deque<Tensor>& sent = sent_[{program::peer_of(each).index(), rank}];
      if (sent.empty()) return false;
      EXPECT_EQ(sent.front().shape, device(rank).buffer(each.outputs[0]).shape) << "received";
      values[rank][each.outputs[0]] = std::move(sent.front());
      sent.pop_front();
    } else if (each.op == program::kSend) {
      const Tensor& value = values[rank].at(std::get<BufferId>(each.arguments[0].value));
      sent_[{rank, program::peer_of(each).index()}].push_back(value);
    } else {
      compute(rank, each);
    }
    if (::testing::Test::HasFatalFailure()) return false;
    ++next_[rank];
    return true;
  }

  void compute(std::size_t rank, const program::Instruction& each) {
    program::for_each_buffer(each.arguments, [&](BufferId id) {
      ASSERT_TRUE(values[rank].contains(id)) << "rank " << rank << ", instruction " << next_[rank]
                                             << ", " << each.full_name() << " reads what is gone";
    });
    if (::testing::Test::HasFatalFailure()) return;
    if (!StepEnding(values[rank], ends[rank]).run(each)) {
      std::vector<Shape> shapes;
      for (const BufferId output : each.outputs)
        shapes.push_back(device(rank).buffer(output).shape);
      Results made = evaluate_pass({each.full_name(), each.arguments, values[rank], shapes}, 0);
      for (std::size_t r = 0; r < made.size(); ++r)
        values[rank][each.outputs[r]] = std::move(made[r]);
    }
    for (const BufferId freed : each.frees) values[rank].erase(freed);
  }

  const Tensor& value(std::size_t rank, const program::Argument& argument) const {
    return values[rank].at(std::get<BufferId>(argument.value));
  }

  bool exchange(GroupId group) {
    const std::vector<Rank>& members = program_.groups[group.index()].members;
    std::vector<const program::Instruction*> own;
    std::vector<const Tensor*> given;
    for (const Rank member : members) {
      const std::size_t rank = member.index();
      if (is_over(rank) || !program::is_collective(now(rank).op) || now(rank).group != group)
        return false;
      own.push_back(&now(rank));
      given.push_back(&value(rank, now(rank).arguments[0]));
    }
    std::vector<Tensor> made;
    for (std::size_t m = 0; m < members.size(); ++m) {
      EXPECT_EQ(own[m]->op, own[0]->op) << "of one group";
      made.push_back(ProgramRun::received(own[m]->op, m, own, given));
    }
    for (std::size_t m = 0; m < members.size(); ++m) {
      const BufferId in_place = std::get<BufferId>(own[m]->arguments[0].value);
      values[members[m].index()][own[m]->outputs.empty() ? in_place : own[m]->outputs[0]] =
          std::move(made[m]);
      ++next_[members[m].index()];
    }
    return true;
  }

  const program::Program& program_;
  std::vector<std::size_t> next_;  // by rank: next instruction
  std::map<std::pair<std::size_t, std::size_t>, std::deque<Tensor>> sent_;  // from, to

 public:
  std::vector<StepEnd> ends;                       ///< by rank
  std::vector<std::map<BufferId, Tensor>> values;  ///< by rank
};

}  // namespace motley::testing
