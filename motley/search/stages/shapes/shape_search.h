#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "motley/search/stages/costs/stage_sums.h"
#include "motley/search/stages/shapes/shape_limits.h"
#include "motley/search/stages/shapes/shape_times.h"

namespace motley::search {

struct ShapeStage {
  std::size_t first = 0, end = 0;  ///< layers
  std::size_t unit = 0;
  auto operator<=>(const ShapeStage&) const = default;
};
/// A replica without places and samples.
struct ReplicaShape {
  std::vector<ShapeStage> stages;
  std::int64_t micro_batch = 1;
  auto operator<=>(const ReplicaShape&) const = default;
};

/// What a replica's step takes at least. Let w_s be forward and backward of a full micro-batch in
/// stage s, W_s those of all its samples, c_s a message to the next stage and one back, u_s the
/// update and e_s the least exchange of its gradients. Stage s cannot begin before the first
/// micro-batch came through those before it, nor can stage 0 end before its last one went back:
///
///     T >= max over s of (sum over r < s of (w_r + c_r) + W_s) + u_0 + e_0,   T >= W_s + u_s + e_s
///
/// whatever the order of passes. (First and last micro-batch are full where there are three or
/// more, stage_plan.h; the planner forms one smaller one only then, or in a single stage.) With
/// equal stages and free messages this is 1F1B's (m + S - 1) w. A message takes what it does at
/// best: inside a host, if both units fit one.
struct ShapeModel {
  /// e_s = exchange_rounds * gradients of s / its host's rate: 2 for a ring over many hosts, 0 if
  /// nothing need leave a host.
  double exchange_rounds = 0;
  bool operator==(const ShapeModel&) const = default;
};

struct ShapeQuestion {
  double seconds = 0;        ///< T
  std::int64_t samples = 0;  ///< 1 or more
  std::int64_t micro_batch = 1;
  std::vector<double> prices;  ///< of a device, by pool; >= 0
  double replica_price = 0;    ///< what each replica costs beside its devices
  double most_cost = std::numeric_limits<double>::infinity();
};
struct PricedShape {
  ReplicaShape shape;
  double cost = 0;
};

/// Replica shapes by the model above: how long one takes, and which is the cheapest that does so
/// many samples in a given time.
class ShapeSearch {
 public:
  ShapeSearch(const StageSums& sums, const ShapeModel& model, const ShapeLimits& limits = {});

  const StageSums& sums() const { return *sums_; }
  const ShapeModel& model() const { return model_; }
  const ShapeLimits& limits() const { return limits_; }

  /// The shape of the least sum of its devices' prices among all that fit memory (1F1B's micro-
  /// batches in flight) and take no longer than `seconds`; absent if all cost `most_cost` or more.
  /// Exact: a dynamic program from the last layer to the first. A state is the layer at which a
  /// suffix of stages begins, their number k (which is what the first of them keeps in flight) and
  /// the first one's unit, where units that send alike are one; its labels are the pairs (time,
  /// cost) of which none is better in both, where time is the bracket of the model over the suffix.
  /// A stage put in front makes it max(W, w + c + time), which grows with it, so a dominated label
  /// never helps. Labels whose cost and least cost of the layers before (each at its cheapest rate,
  /// devices in fractions) reach `most_cost` are dropped. O(layers units stages (layers + units)
  /// labels).
  std::optional<PricedShape> cheapest(const ShapeQuestion& question) const;

  /// What any shape costs at least, per sample: each layer at its cheapest rate, devices in
  /// fractions, everything else for nothing. Infinite if no unit knows the micro-batch.
  double least_cost(double seconds, std::int64_t micro_batch,
                    const std::vector<double>& prices) const;

  /// What so many samples take in the shape, and how many fit into a time and memory; 0 if none.
  double seconds(const ReplicaShape& shape, std::int64_t samples) const;
  std::int64_t most_samples(const ReplicaShape& shape, double seconds, std::int64_t most) const;
  /// Do the limits let stages of a replica be on units of this and that one's pools?
  bool are_together(const StageUnit& unit, const StageUnit& other) const;
  /// Is it within the limits, every micro-batch size known, and does 1F1B fit the memory?
  bool is_valid(const ReplicaShape& shape) const;
  std::vector<int> devices(const ReplicaShape& shape) const;  ///< by pool

  /// Two messages of a micro-batch between neighbours, there and back; infinite without a link.
  double messages(std::size_t unit, std::size_t next, std::size_t end,
                  std::int64_t micro_batch) const;
  double exchange(std::size_t unit, std::size_t first, std::size_t end) const;
  /// Where two units may be.
  struct Meeting {
    bool in_one_host = false, apart = false;
  };
  Meeting find_meeting(std::size_t unit, std::size_t next) const;

 private:
  friend class CheapestShape;
  friend class FastestProgram;
  /// What all questions of one micro-batch look up.
  struct BatchTables {
    std::vector<const WorkSums*> work;            ///< by unit; null: not known
    std::vector<std::vector<double>> post;        ///< [unit][first (layers + 1) + end]
    std::vector<std::vector<std::int32_t>> kept;  ///< the same: most micro-batches in flight
    std::vector<double> messages;                 ///< [end][unit][next]
    /// By unit the first of those of its pool that send and receive in the same times.
    std::vector<std::size_t> identical;
  };
  const BatchTables& tables(std::int64_t micro_batch) const;
  struct KnownShape {
    ShapeTimes times;
    std::int64_t most_held;  // samples that 1F1B's memory holds
  };
  const KnownShape& know(const ReplicaShape& shape) const;
  std::int64_t find_most_held(const ReplicaShape& shape) const;

  const StageSums* sums_;
  ShapeModel model_;
  ShapeLimits limits_;
  double find_messages(std::size_t unit, std::size_t next, Bytes bytes) const;
  void find_identical(BatchTables& tables) const;

  std::vector<double> host_rates_;  // by unit
  /// Bytes -> [unit][next], negative where not yet asked for.
  mutable std::map<std::int64_t, std::vector<double>> hops_;
  mutable std::map<std::int64_t, BatchTables> tables_;
  mutable std::map<ReplicaShape, KnownShape> known_;
  struct Scratch;  // of one question, kept for its memory
  std::shared_ptr<Scratch> scratch_;
};

}  // namespace motley::search
