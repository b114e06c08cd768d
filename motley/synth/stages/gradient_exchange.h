#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/graph/rules/strategy.h"
#include "motley/synth/ranks/update.h"
#include "motley/synth/stages/stage_graphs.h"
#include "motley/synth/step/rank_step.h"

namespace motley::synth {

/// Sums of gradients over regions that hold the same parameter, each whole or in parts, cut by
/// their own shares. Where the parts of all holders begin and end, a parameter falls into
/// intervals; all devices that have an interval sum it, several intervals of the same devices
/// together (`bucket_bytes`), in the order in which they are there. Of a region whose devices all
/// have the same gradient one gives it, the others zeros; where each has a term all do.
///
/// A device packs a bucket as soon as it has its gradients. The sum begins, on all holders at one
/// place of the step's order, where the last of them has packed: so the transfer lanes of all
/// devices keep to one order, and what is still computed hides the sum. Updates come behind all
/// passes of a device: before, they would only hold up what other regions wait for.
///
/// Where states are shared (plan::Plan::state_shares) each interval has an owner among its holders.
/// Its bucket is reduce-scattered: every holder gets the sum of what it owns, updates that, and the
/// new rows are gathered from the owners. What a device owns of a parameter are rows that follow
/// each other, as its share says, of those that it has.
class GradientExchange {
 public:
  /// What one device has of a gradient, as its region keeps the parameter.
  struct Share {
    std::size_t stage = 0, member = 0, rank = 0;
    std::int64_t output = 0;  ///< of the stage's graph
    graph::Form form;         ///< of the parameter
    bool is_term = false;     ///< the region's devices have terms of it
    std::int64_t ready = 0;   ///< position of the step behind which it is there
    int bucket = -1;          ///< of the region's own exchanges; -1: in none
  };
  /// Where instructions go.
  struct Target {
    Bytes bucket_bytes;
    std::function<RankStep&(std::size_t stage, std::size_t member)> rank;
    std::function<Update&(std::size_t stage, std::size_t member)> update;
    std::function<GroupId(const std::vector<std::size_t>& ranks)> group;
    /// A gradient that is there.
    std::function<BufferId(const Share& share)> gradient;
    /// Position up to which a rank's regions use its transfer lane for their operators.
    std::function<std::int64_t(std::size_t rank)> busy_until;
    std::vector<double> state_shares = {};  ///< by rank; empty: all keep all states
    bool updates_at_once = true;            ///< as soon as gradients are there, not when all are
  };

  /// `step` must outlive it.
  GradientExchange(const StagedStep& step, Target target);
  ~GradientExchange();

  void add(const Share& share);
  /// When all shares are known: what is exchanged together, and when. Usage error
  /// (synth.unsupported) where a parameter is cut along different dimensions. Says to updates which
  /// rows are theirs, so these have not begun.
  Result<void> arrange();
  /// The operators up to this position have been written: writes what can be begun now.
  void begin(std::int64_t position);
  /// All have been: begins the rest and writes updates, first of what one region alone has, then
  /// bucket by bucket; of each whose rows all owners have updated these are gathered.
  void finish();
  /// All updates are written: gathers the rest, and gives every holder its parameter.
  void give_back();
  /// Names of parameters whose states are shared.
  const std::set<std::string>& shared() const { return shared_; }
  /// After `finish`: gradients, or stretches of them, that count on a rank for the norm of all.
  const std::vector<BufferId>& counted(std::size_t rank);

 private:
  class Writer;

  const StagedStep& step_;
  std::vector<std::string> names_;                    // of parameters, in the order of their first
  std::map<std::string, std::vector<Share>> shares_;  // by parameter
  std::set<std::string> shared_;
  std::unique_ptr<Writer> writer_;
};

}  // namespace motley::synth
