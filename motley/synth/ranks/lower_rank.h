#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "motley/program/program.h"
#include "motley/synth/ranks/update.h"
#include "motley/synth/step/place.h"
#include "motley/synth/step/rank_step.h"
#include "motley/synth/step/sharded_step.h"

namespace motley::synth {

/// Writes one rank's sharded step: sources first, then operators one after the other in the order
/// of the schedule, with the exchanges that begin behind them; then what becomes of outputs.
class RankWriter {
 public:
  /// `rank` must outlive it.
  explicit RankWriter(RankStep& rank);

  RankStep& rank() const { return rank_; }
  Update& update() { return update_; }
  /// Parameters, buffers, constants and the inputs and the tangent that operators use. Do parts of
  /// the step that others have keep a parameter, too, is said before the updates of it are
  /// prepared.
  void begin();
  /// The operator at a position of the order.
  void write(std::size_t position);

  /// An output of the graph in its form.
  struct Given {
    std::int64_t output = 0;
    BufferId value;
  };
  /// Those that no exchange gives.
  std::vector<Given> direct_outputs();
  /// How many buckets of exchanged outputs there are, and what one of them gives; what is computed
  /// next waits for it.
  std::size_t buckets() const { return exchanged_.size(); }
  std::vector<Given> exchanged_outputs(std::size_t bucket);
  /// The same one by one, in any order: an output that is there, or on its way.
  BufferId output(std::int64_t output);
  /// Also the wish to stop, if it is none of the graph's.
  static constexpr std::int64_t kStop = BucketItem::kStop;

  /// Notes what becomes of an output.
  void add_output(const Given& given);
  /// New values of buffers.
  void assign_buffers();
  BufferId loss() const { return loss_; }
  std::vector<BufferId> metrics() const;

 private:
  void gather_parameters(std::int64_t position);
  void exchange_outputs(std::int64_t position);

  RankStep& rank_;
  Update update_;
  std::vector<BufferId> gathering_;           // flat, by bucket of parameters begun
  std::size_t gathered_ = 0;                  // how many of these are over
  std::vector<BufferId> exchanged_;           // flat, by bucket of outputs begun
  std::vector<BufferId> targets_, updates_;   // buffers of the model, and their new values
  std::map<std::int64_t, BufferId> outputs_;  // by output: that one asked for
  BufferId loss_;
  std::map<std::int64_t, BufferId> metrics_;  // by output of the graph
};

std::string bucket_label(std::size_t bucket);
/// Is a synthesised instruction of a bucket of parameters or outputs, which a step exchanges once
/// however many micro-batches it has?
bool is_of_bucket(const program::Instruction& instruction);

/// One rank's program of a sharded step: sources, operators in the order of the schedule, exchanges
/// as soon as what they carry is there, updates of parameters and the report. `start` is the
/// program without buffers and instructions. O(graph).
program::DeviceProgram lower_rank(const ShardedStep& step, Place& place,
                                  program::DeviceProgram start);

}  // namespace motley::synth
