#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "motley/synth/ranks/accumulation.h"

namespace motley::synth {

inline constexpr std::string_view kBatch = "batch";

/// A step in passes: the micro-batches of one replica after the other.
struct PassedStep {
  const graph::Graph& graph;
  Passes passes;
  bool is_loop = false;    ///< batch norm's statistics are of each pass (Accumulation)
  bool has_terms = false;  ///< outputs stay terms of replicas (accumulate_replicas)

  std::int64_t times() const { return static_cast<std::int64_t>(passes.stretches.size()); }
  std::int64_t batch() const {
    return passes.stretches.back().first + passes.stretches.back().count;
  }
  const plan::Stretch& stretch(std::int64_t pass) const {
    return passes.stretches[static_cast<std::size_t>(pass)];
  }
  std::size_t replica_of(std::int64_t pass) const {
    return passes.replica_of[static_cast<std::size_t>(pass)];
  }
  /// Is it the first of its replica?
  bool is_first(std::int64_t pass) const {
    return pass == 0 || replica_of(pass) != replica_of(pass - 1);
  }
  /// Usage error (synth.accumulation).
  tl::unexpected<Error> refuse(const std::string& why) const;
};

/// Is it a mean of negative log-likelihoods, over the labels of all samples?
bool is_mean_loss(const graph::Op& op);

/// Which values each pass has of its own. Samples are spread over passes in time as a sharding
/// spreads them over devices.
struct PassValues {
  const PassedStep& step;
  Sharding time;  ///< passes in the place of devices
  std::vector<graph::ShardingRule> rules = {};
  Held held = Held(0);
  std::vector<char> is_of_inputs = {};  ///< by value: made of inputs and constants alone
  /// by value: each pass has its own though it has no samples: statistics, counts of labels,
  /// updated buffers, results of these, and of replicas what is made of samples
  std::vector<char> is_own = {};

  const graph::Form& home(ValueId value) const { return held.homes[value.index()]; }
  bool has_copies(ValueId value) const {
    return home(value) != graph::kWholeForm || is_own[value.index()] != 0;
  }
  /// Returns the form in which an operator takes an operand; its home if only the dtype is read or
  /// both are the same.
  graph::Form wanted(std::size_t op, std::size_t operand) const;
  /// Does the operator need the sum over all samples?
  bool takes_sum(std::size_t op, std::size_t operand) const;
  bool takes_own(std::size_t op) const;
};

/// Finds them. The step must outlive the result. O(graph).
PassValues find_pass_values(const PassedStep& step);

}  // namespace motley::synth
