#include "motley/synth/stages/step_end.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "motley/base/check.h"
#include "motley/graph/reach.h"

namespace motley::synth {
namespace {

/// Outputs that all devices report.
struct Reported {
  std::vector<std::vector<BufferId>> losses;                       // by rank: its terms
  std::map<std::string, std::map<std::size_t, BufferId>> metrics;  // by name and rank
};

Reported take_outputs(const ShardedStages& stages, StagePrograms& programs) {
  Reported reported;
  reported.losses.resize(programs.ranks());
  for (const Seat& seat : programs.seats()) {
    RankWriter& writer = programs.writer(seat);
    const std::vector<graph::Output>& outputs = stages.graph_of(seat).outputs;
    for (std::size_t o = 0; o < outputs.size(); ++o) {
      if (outputs[o].kind == graph::OutputKind::kGradient || !graph::is_wanted(outputs[o]))
        continue;
      const auto index = static_cast<std::int64_t>(o);
      const BufferId value = writer.output(index);
      if (outputs[o].kind == graph::OutputKind::kLoss)
        reported.losses[seat.rank].push_back(writer.rank().keep_once(value, "loss"));
      else if (outputs[o].kind == graph::OutputKind::kMetric)
        reported.metrics[outputs[o].name][seat.rank] = writer.rank().keep_once(value, "metric");
      else
        writer.add_output({index, value});
    }
  }
  return reported;
}

/// Returns by rank the sum of the squares of all gradients.
std::vector<BufferId> sum_squares(GradientExchange& gradients, StagePrograms& programs) {
  const std::string label = "gradient norm";
  std::vector<BufferId> squares(programs.ranks());
  for (const std::size_t rank : programs.lowered()) {
    ProgramBuilder& builder = programs.builder(rank);
    const std::vector<BufferId>& counted = gradients.counted(rank);
    if (counted.empty()) {
      squares[rank] = builder.zeros({1}, DType::kF64, label);
    } else {
      const BufferId each =
          builder.make("motley::square_sums", {{buffer_list(counted)}}, DType::kF64,
                       {static_cast<std::int64_t>(counted.size())}, label);
      squares[rank] =
          builder.make("aten::sum.dim_IntList", {{each}, {integers({0})}, {true}, none()},
                       DType::kF64, {1}, label);
    }
    programs.all_reduce(rank, squares[rank], label);
  }
  return squares;
}

/// Writes the last updates; returns by rank the norm of all gradients, if anybody asks for it.
std::vector<BufferId> finish_updates(const plan::Recipe& recipe, GradientExchange& gradients,
                                     StagePrograms& programs) {
  std::vector<BufferId> squares, norms(programs.ranks());
  if (recipe.needs_factor()) squares = sum_squares(gradients, programs);
  std::map<std::size_t, const Update*> updates;  // by rank: the first
  for (const Seat& seat : programs.seats()) {
    Update& update = programs.writer(seat).update();
    const auto [first, is_first] = updates.try_emplace(seat.rank, &update);
    if (squares.empty())
      update.finish();
    else if (is_first)
      update.finish(squares[seat.rank]);
    else
      update.finish(*first->second);  // the scale changes once a step
    programs.writer(seat).assign_buffers();
    if (!update.norm().is_none()) norms[seat.rank] = update.norm();
  }
  return norms;
}

/// Gives the metrics to all ranks; returns them by rank, in the order of the graph.
std::vector<std::vector<BufferId>> share_metrics(const graph::Graph& model, Reported& reported,
                                                 StagePrograms& programs) {
  std::vector<std::vector<BufferId>> shared(programs.ranks());
  for (const graph::Output& output : model.outputs) {
    if (output.kind != graph::OutputKind::kMetric) continue;
    const std::map<std::size_t, BufferId>& owners = reported.metrics[output.name];
    MOTLEY_CHECK(!owners.empty());
    const auto& [owner, value] = *owners.begin();
    const DType dtype = programs.builder(owner).buffer(value).dtype;
    for (const std::size_t rank : programs.lowered()) {
      ProgramBuilder& builder = programs.builder(rank);
      const auto own = owners.find(rank);
      BufferId term = own != owners.end() ? own->second : builder.zeros({}, dtype, "metric");
      if (programs.ranks() > 1) {
        const BufferId flat = builder.pack({term}, dtype, "metric");
        programs.all_reduce(rank, flat, "metric");
        term = builder.unpack(flat, {Shape{}}, "metric")[0];
      }
      shared[rank].push_back(term);
    }
  }
  return shared;
}

/// Sums loss and wish to stop over all devices.
std::pair<BufferId, BufferId> share_loss(std::size_t rank, BufferId loss, BufferId stop,
                                         StagePrograms& programs) {
  if (programs.ranks() == 1) return {loss, stop};
  ProgramBuilder& builder = programs.builder(rank);
  const DType dtype = builder.buffer(loss).dtype;
  const bool is_one = dtype == DType::kF32;
  const std::vector<BufferId> terms =
      is_one ? std::vector<BufferId>{loss, stop} : std::vector<BufferId>{loss};
  const BufferId flat = builder.pack(terms, dtype, "loss");
  programs.all_reduce(rank, flat, "loss");
  if (!is_one) programs.all_reduce(rank, stop, "stop");
  const std::vector<BufferId> back =
      builder.unpack(flat, is_one ? std::vector<Shape>{{}, {1}} : std::vector<Shape>{{}}, "loss");
  return {back[0], is_one ? back[1] : stop};
}

BufferId add_up(const std::vector<BufferId>& losses, DType dtype, ProgramBuilder& builder) {
  if (losses.empty()) return builder.zeros({}, dtype, "loss");
  BufferId loss = losses.front();
  for (std::size_t i = 1; i < losses.size(); ++i)
    loss = builder.make("aten::add.Tensor", {{loss}, {losses[i]}, {std::int64_t{1}}}, dtype, {},
                        "loss");
  return loss;
}

}  // namespace

void write_step_end(const graph::Graph& model, const plan::Recipe& recipe,
                    const ShardedStages& stages, GradientExchange& gradients,
                    StagePrograms& programs) {
  for (const std::size_t rank : programs.lowered()) {
    programs.enter(rank, stages.step.tasks);
    programs.await_first(rank);
    programs.await_kept(rank);
  }
  gradients.finish();
  Reported reported = take_outputs(stages, programs);
  const std::vector<BufferId> norms = finish_updates(recipe, gradients, programs);
  gradients.give_back();
  const std::vector<std::vector<BufferId>> metrics = share_metrics(model, reported, programs);
  DType dtype = DType::kF32;
  for (const std::size_t rank : programs.lowered())
    for (const BufferId loss : reported.losses[rank])
      dtype = programs.builder(rank).buffer(loss).dtype;
  for (const std::size_t rank : programs.lowered()) {
    ProgramBuilder& builder = programs.builder(rank);
    const BufferId own = add_up(reported.losses[rank], dtype, builder);
    const BufferId own_stop = builder.make("motley::stop_request", {}, DType::kF32, {1}, "stop");
    const auto [loss, stop] = share_loss(rank, own, own_stop, programs);
    builder.compute("motley::report",
                    {{loss}, {stop}, buffer_or_none(norms[rank]), {buffer_list(metrics[rank])}}, {},
                    "report");
  }
}

}  // namespace motley::synth
