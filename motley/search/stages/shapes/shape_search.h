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
/// A pipeline configuration: a replica without places and samples.
struct ReplicaShape {
  std::vector<ShapeStage> stages;
  std::int64_t micro_batch = 1;
  auto operator<=>(const ReplicaShape&) const = default;
};

/// A lower bound of a replica's step. Let w_s be the forward and backward pass of a full
/// micro-batch in stage s, W_s those of all its samples, c_s a message to the next stage and one
/// back, u_s the update and e_s the least exchange of its gradients. Stage s cannot begin before
/// the first micro-batch has passed the stages before it, and stage 0 cannot end before the last
/// one has returned:
///
///     T >= max over s of (sum over r < s of (w_r + c_r) + W_s) + u_0 + e_0,   T >= W_s + u_s + e_s
///
/// for any order of passes. (The first and last micro-batch are full if there are three or more,
/// stage_plan.h; the planner forms one smaller one only then, or in a single stage.) With equal
/// stages and free messages this is 1F1B's (m + S - 1) w. A message takes its best time: inside a
/// host, if both units fit one.
struct ShapeModel {
  /// e_s = exchange_rounds * gradients of s / host rate; 2 for a ring over hosts, 0 within a host.
  double exchange_rounds = 0;
  bool operator==(const ShapeModel&) const = default;
};

struct ShapeQuestion {
  double seconds = 0;        ///< T
  std::int64_t samples = 0;  ///< 1 or more
  std::int64_t micro_batch = 1;
  std::vector<double> prices;  ///< of a device, by pool; >= 0
  double replica_price = 0;    ///< of each replica, besides its devices
  double most_cost = std::numeric_limits<double>::infinity();
};
struct PricedShape {
  ReplicaShape shape;
  double cost = 0;
};

/// Finds the time of configurations by the model above, and the cheapest for samples in a time.
class ShapeSearch {
 public:
  ShapeSearch(const StageSums& sums, const ShapeModel& model, const ShapeLimits& limits = {});

  const StageSums& sums() const { return *sums_; }
  const ShapeModel& model() const { return model_; }
  const ShapeLimits& limits() const { return limits_; }

  /// Finds the configuration with the least sum of device prices among all that fit in memory
  /// (1F1B's micro-batches in flight) and take at most `seconds`; absent if all cost `most_cost` or
  /// more. Exact: a dynamic program from the last layer to the first. A state is the first layer of
  /// a suffix of stages, their number k (micro-batches in flight in the first) and the first one's
  /// unit, with units that send alike combined. Its labels are the undominated pairs (time, cost),
  /// with the model's bracket over the suffix as time. A stage before it makes the time max(W, w +
  /// c + time), which increases with time, so dominated labels never help. Labels are dropped if
  /// their cost plus the least cost of the preceding layers (each at its cheapest rate, fractional
  /// devices) reaches `most_cost`. O(layers units stages (layers + units) labels).
  std::optional<PricedShape> cheapest(const ShapeQuestion& question) const;

  /// Returns the least cost per sample of any configuration: each layer at its cheapest rate,
  /// fractional devices, all else free. Infinite if no unit knows the micro-batch.
  double least_cost(double seconds, std::int64_t micro_batch,
                    const std::vector<double>& prices) const;

  /// Return the time of samples, and the most samples in a time and memory; 0 if none.
  double seconds(const ReplicaShape& shape, std::int64_t samples) const;
  std::int64_t most_samples(const ReplicaShape& shape, double seconds, std::int64_t most) const;
  /// May a replica have stages on both units' pools?
  bool are_together(const StageUnit& unit, const StageUnit& other) const;
  /// Is it within the limits, with known micro-batch sizes, and does 1F1B fit in memory?
  bool is_valid(const ReplicaShape& shape) const;
  std::vector<int> devices(const ReplicaShape& shape) const;  ///< by pool

  /// Returns the time of a micro-batch's two messages between neighbours; infinite without a link.
  double messages(std::size_t unit, std::size_t next, std::size_t end,
                  std::int64_t micro_batch) const;
  double exchange(std::size_t unit, std::size_t first, std::size_t end) const;
  struct Meeting {
    bool in_one_host = false, apart = false;
  };
  Meeting find_meeting(std::size_t unit, std::size_t next) const;

 private:
  friend class CheapestShape;
  friend class FastestProgram;
  /// Tables shared by all questions of one micro-batch.
  struct BatchTables {
    std::vector<const WorkSums*> work;            ///< by unit; null: not known
    std::vector<std::vector<double>> post;        ///< [unit][first (layers + 1) + end]
    std::vector<std::vector<std::int32_t>> kept;  ///< likewise: most micro-batches in flight
    std::vector<double> messages;                 ///< [end][unit][next]
    /// By unit: the first one of its pool with the same send and receive times.
    std::vector<std::size_t> identical;
  };
  const BatchTables& tables(std::int64_t micro_batch) const;
  struct KnownShape {
    ShapeTimes times;
    std::int64_t most_held;  // samples that fit with 1F1B
  };
  const KnownShape& know(const ReplicaShape& shape) const;
  std::int64_t find_most_held(const ReplicaShape& shape) const;

  const StageSums* sums_;
  ShapeModel model_;
  ShapeLimits limits_;
  double find_messages(std::size_t unit, std::size_t next, Bytes bytes) const;
  void find_identical(BatchTables& tables) const;

  std::vector<double> host_rates_;  // by unit
  /// Bytes -> [unit][next]; negative: not computed yet.
  mutable std::map<std::int64_t, std::vector<double>> hops_;
  mutable std::map<std::int64_t, BatchTables> tables_;
  mutable std::map<ReplicaShape, KnownShape> known_;
  struct Scratch;  // of one question, kept to reuse its memory
  std::shared_ptr<Scratch> scratch_;
};

}  // namespace motley::search
