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

/// Writes one rank's sharded step: sources, then operators in schedule order with the exchanges
/// that start after them, then the handling of outputs.
class RankWriter {
 public:
  /// `rank` must outlive it.
  explicit RankWriter(RankStep& rank);

  RankStep& rank() const { return rank_; }
  Update& update() { return update_; }
  /// Adds parameters, buffers, constants, the tangent and the inputs that operators use. If other
  /// parts of the step keep a parameter too, this must be set before its updates are prepared.
  void begin();
  void write(std::size_t position);

  /// An output of the graph in its form.
  struct Given {
    std::int64_t output = 0;
    BufferId value;
  };
  /// Returns the outputs that need no exchange.
  std::vector<Given> direct_outputs();
  /// Buckets of exchanged outputs, and the outputs of one; later compute waits for the bucket.
  std::size_t buckets() const { return exchanged_.size(); }
  std::vector<Given> exchanged_outputs(std::size_t bucket);
  /// Returns one output, ready or in flight; any order is allowed.
  BufferId output(std::int64_t output);
  /// Also the stop request, which is no output of the graph.
  static constexpr std::int64_t kStop = BucketItem::kStop;

  /// Records how an output is used.
  void add_output(const Given& given);
  void assign_buffers();
  BufferId loss() const { return loss_; }
  std::vector<BufferId> metrics() const;

 private:
  void gather_parameters(std::int64_t position);
  void exchange_outputs(std::int64_t position);

  RankStep& rank_;
  Update update_;
  std::vector<BufferId> gathering_;           // flat, by started bucket of parameters
  std::size_t gathered_ = 0;                  // how many of these are done
  std::vector<BufferId> exchanged_;           // flat, by started bucket of outputs
  std::vector<BufferId> targets_, updates_;   // the model's buffers and their new values
  std::map<std::int64_t, BufferId> outputs_;  // by output, for outputs requested singly
  BufferId loss_;
  std::map<std::int64_t, BufferId> metrics_;  // by output of the graph
};

std::string bucket_label(std::size_t bucket);
/// Does a synthesised instruction belong to a bucket of parameters or outputs? A step exchanges
/// these once, however many micro-batches it has.
bool is_of_bucket(const program::Instruction& instruction);

/// Lowers one rank's program of a sharded step: sources, operators in schedule order, exchanges as
/// soon as their contents are ready, updates of parameters and the report. `start` is the program
/// without buffers and instructions. O(graph).
program::DeviceProgram lower_rank(const ShardedStep& step, Place& place,
                                  program::DeviceProgram start);

}  // namespace motley::synth
