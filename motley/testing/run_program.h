#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "motley/program/parts.h"
#include "motley/program/program_text.h"
#include "motley/testing/run_graph.h"

namespace motley::testing {

/// Runs a program's devices in lock step, each up to the next exchange.
class ProgramRun {
 public:
  ProgramRun(const program::Program& program, const NamedTensors& given)
      : program_(program),
        values_(program.devices.size()),
        next_(program.devices.size(), 0),
        steps(program.devices.size()) {
    for (std::size_t rank = 0; rank < program.devices.size(); ++rank) place(rank, given);
  }

  /// Returns values by rank; for a parameter in parts, the part's gradient.
  std::vector<StepValues> run() {
    while (true) {
      for (std::size_t rank = 0; rank < next_.size(); ++rank) compute(rank);
      std::size_t over = 0;
      for (std::size_t rank = 0; rank < next_.size(); ++rank) over += is_over(rank) ? 1 : 0;
      EXPECT_TRUE(over == 0 || over == next_.size()) << "some wait for an exchange, some are over";
      if (over > 0) return steps;
      exchange();
    }
  }

  static Tensor part_of(const Tensor& whole, const program::Buffer& buffer) {
    if (!buffer.part) return whole;
    const auto& [before, begin, extent, after, is_copy] = *buffer.part;
    return {buffer.shape, rows_of(whole.at, {before, extent, after}, begin,
                                  count_of(buffer.shape) / before / after)};
  }

  /// Returns what a member receives in an exchange of all members' values.
  static Tensor received(const std::string& op, std::size_t rank,
                         const std::vector<const program::Instruction*>& own,
                         const std::vector<const Tensor*>& given) {
    const auto add = [](std::vector<double>& to, const std::vector<double>& from,
                        const Shape& counts, std::size_t part) {
      const auto first =
          from.begin() + std::accumulate(counts.begin(),
                                         counts.begin() + static_cast<std::ptrdiff_t>(part),
                                         std::int64_t{0});
      to.insert(to.end(), first, first + counts[part]);
    };
    if (op == program::kAllReduce || op == program::kReduceScatter) {
      Tensor sum = filled(given[rank]->shape, 0);
      for (const Tensor* each : given)
        std::transform(each->at.begin(), each->at.end(), sum.at.begin(), sum.at.begin(),
                       std::plus<>());
      if (op == program::kAllReduce) return sum;
      Tensor part;
      add(part.at, sum.at, program::find_exchange_parts(*own[rank])->counts, rank);
      part.shape = {static_cast<std::int64_t>(part.at.size())};
      return part;
    }
    Tensor all;
    for (std::size_t r = 0; r < given.size(); ++r) {
      const auto parts = program::find_exchange_parts(*own[r]);
      if (op == program::kAllGather)
        all.at.insert(all.at.end(), given[r]->at.begin(), given[r]->at.end());
      else
        add(all.at, given[r]->at, parts->counts, rank);
    }
    all.shape = {static_cast<std::int64_t>(all.at.size())};
    return all;
  }

 private:
  const program::DeviceProgram& device(std::size_t rank) const { return program_.devices[rank]; }
  bool is_over(std::size_t rank) const { return next_[rank] == device(rank).instructions.size(); }

  void place(std::size_t rank, const NamedTensors& given) {
    const program::DeviceProgram& own = device(rank);
    for (std::size_t b = 0; b < own.buffers.size(); ++b) {
      const program::Buffer& buffer = own.buffers[b];
      const BufferId id(static_cast<std::int64_t>(b));
      if (buffer.kind == program::BufferKind::kTemporary ||
          buffer.kind == program::BufferKind::kState)
        continue;
      const Tensor& whole = given.at(buffer.name);
      Tensor& here = values_[rank][id] = part_of(whole, buffer);
      if (buffer.kind != program::BufferKind::kInput || buffer.shape == whole.shape) continue;
      here = {buffer.shape, {}};
      const std::int64_t width = count_of(whole.shape) / whole.shape[0];
      for (const std::int64_t sample : program_.samples_of(own))
        here.at.insert(here.at.end(), whole.at.begin() + sample * width,
                       whole.at.begin() + (sample + 1) * width);
      EXPECT_EQ(count_of(here.shape), static_cast<std::int64_t>(here.at.size())) << buffer.name;
    }
  }

  void compute(std::size_t rank) {
    const auto& all = device(rank).instructions;
    for (; !is_over(rank) && all[next_[rank]].lane == Lane::kCompute; ++next_[rank]) {
      const program::Instruction& each = all[next_[rank]];
      program::for_each_buffer(each.arguments, [&](BufferId id) {
        ASSERT_TRUE(values_[rank].contains(id) &&
                    values_[rank].contains(storage_of(device(rank), id)))
            << "rank " << rank << ", instruction " << next_[rank] << " reads what is gone";
      });
      if (!notes(rank, each)) apply(rank, each);
      for (const BufferId freed : each.frees) values_[rank].erase(freed);
    }
  }

  void apply(std::size_t rank, const program::Instruction& each) {
    std::vector<Shape> shapes;
    for (const BufferId output : each.outputs) shapes.push_back(device(rank).buffer(output).shape);
    Results made = evaluate({each.full_name(), each.arguments, values_[rank], shapes});
    for (std::size_t r = 0; r < made.size(); ++r)
      values_[rank][each.outputs[r]] = std::move(made[r]);
  }

  /// Handles the begin and end of a step.
  bool notes(std::size_t rank, const program::Instruction& each) {
    if (each.op == "motley::load" || each.op == "motley::assign") return true;
    if (each.op == "motley::report") {
      steps[rank].loss = values_[rank].at(std::get<BufferId>(each.arguments[0].value)).at[0];
      return true;
    }
    if (each.op != "motley::update") return false;
    const auto ids = [&](std::size_t i) {
      std::vector<BufferId> found;
      for (const auto& one : std::get<program::ArgumentList>(each.arguments[i].value))
        found.push_back(std::get<BufferId>(one.value));
      return found;
    };
    const std::vector<BufferId> parameters = ids(1), gradients = ids(2);
    for (std::size_t i = 0; i < parameters.size(); ++i)
      steps[rank].gradients[device(rank).buffer(parameters[i]).name] =
          values_[rank].at(gradients[i]);
    return true;
  }

  void exchange() {
    const std::size_t ranks = next_.size();
    const std::string op = device(0).instructions[next_[0]].op;
    std::vector<const program::Instruction*> own;
    std::vector<const Tensor*> given;
    for (std::size_t r = 0; r < ranks; ++r) {
      own.push_back(&device(r).instructions[next_[r]++]);
      ASSERT_EQ(own[r]->op, op) << "rank " << r;
      given.push_back(&values_[r].at(std::get<BufferId>(own[r]->arguments[0].value)));
    }
    std::vector<Tensor> made(ranks);
    for (std::size_t r = 0; r < ranks; ++r) made[r] = received(op, r, own, given);
    for (std::size_t r = 0; r < ranks; ++r) {
      const bool is_in_place = own[r]->outputs.empty();
      const BufferId to =
          is_in_place ? std::get<BufferId>(own[r]->arguments[0].value) : own[r]->outputs[0];
      EXPECT_EQ(made[r].shape, device(r).buffer(to).shape) << op << " on rank " << r;
      values_[r][to] = std::move(made[r]);
    }
  }

  const program::Program& program_;
  std::vector<std::map<BufferId, Tensor>> values_;  // by rank
  std::vector<std::size_t> next_;                   // by rank: next instruction

 public:
  std::vector<StepValues> steps;  ///< by rank
};

/// Expects on every rank the graph's whole-batch loss, and gradients of its parameters.
inline void expect_runs_as(const program::Program& program, const graph::Graph& graph,
                           std::uint64_t seed) {
  const NamedTensors given = draw_values(graph, program.global_batch, seed);
  const StepValues wanted = run_graph(graph, program.global_batch, given);
  const std::vector<StepValues> steps = ProgramRun(program, given).run();
  for (std::size_t rank = 0; rank < steps.size(); ++rank) {
    const std::string who = " on rank " + std::to_string(rank);
    EXPECT_NEAR(steps[rank].loss, wanted.loss, 1e-9 * std::max(1.0, std::abs(wanted.loss))) << who;
    EXPECT_EQ(steps[rank].gradients.size(), wanted.gradients.size()) << who;
    for (const program::Buffer& buffer : program.devices[rank].buffers)
      if (const auto whole = wanted.gradients.find(buffer.name);
          whole != wanted.gradients.end() && buffer.kind == program::BufferKind::kParameter)
        expect_near(steps[rank].gradients.at(buffer.name),
                    ProgramRun::part_of(whole->second, buffer), buffer.name + who);
  }
}

}  // namespace motley::testing
