#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "motley/graph/graph.h"
#include "motley/search/spmd/bound_terms.h"
#include "motley/search/spmd/mean_time.h"
#include "motley/search/spmd/prices.h"
#include "motley/search/spmd/space.h"

namespace motley::search {

/// A kind of devices in a bound: its largest number, its total weight (1 over all kinds), and the
/// known share of its fullest device.
struct BoundedKind {
  int count = 1;
  double weight = 0;
  ShareRange share;
};

/// Weights of the costs of a choice of ways, a sum over operators, values and parameters.
struct SpmdObjective {
  double compute = 1;            ///< weight of compute of the slowest class
  double exchange = 1;           ///< weight of exchanges
  double gradient_exchange = 1;  ///< of gradients, which the rest of the backward pass hides
  double once = 1;               ///< of exchanges of gradients and parameters, once per step
  double seconds_per_byte = 0;   ///< price of memory on the fullest device
  int states = 0;                ///< optimizer tensors per parameter
  /// Mirrors of each part of a parameter (get its gradient, repeat its update). Not for bounds.
  int copies = 0;
  /// For bound.h: weights of the bounds (bound_terms.h), by bit. Nothing then counts more than in
  /// any plan of any shares, and compute is the mean over classes with the weights of `kinds`.
  /// Empty: no bound.
  std::vector<double> bounds;
  std::vector<BoundedKind> kinds;  ///< by class
};

/// The readers of a value: only gradients, gradients and operators, or only operators.
enum class Wanted { kByGradientsAlone, kByGradients, kByOperators };

/// Prices single choices (choice_problem.h) by an objective: an operator's way, a parameter's form,
/// a change of form. All references must outlive it.
class ChoicePricing {
 public:
  ChoicePricing(const graph::Graph& graph, const SpmdSpace& space, SpmdPrices& prices,
                const SpmdObjective& objective)
      : graph_(graph), space_(space), prices_(prices), objective_(objective) {}

  /// For a bound: makes operators that are split by samples have the same parts.
  void share_samples(const BoundTerms& terms);
  bool is_bound() const { return !objective_.bounds.empty(); }
  /// `compute`, `inner`: the bounds in which its compute and inner exchanges count.
  double operator_cost(OpId op, const graph::Strategy& way, unsigned compute, unsigned inner);
  double parameter_cost(ValueId id, const graph::Form& form);
  double memory_price(ValueId value, const graph::Form& form, double copies);
  /// `bounds`: those in which its exchange and its copies count.
  double change_cost(ValueId value, const graph::Form& from, const graph::Form& to, Wanted wanted,
                     const std::pair<unsigned, unsigned>& bounds);
  /// For a bound: returns the least cost of a change to one of several forms.
  double least_change(ValueId value, const graph::Form& from,
                      const std::vector<graph::Form>& wanted, unsigned bounds);
  /// For a bound: returns what one of many readers pays for a form that others may share.
  double shared(double cost, std::size_t most_sharing) const {
    return is_bound() && most_sharing > 1 ? cost / static_cast<double>(most_sharing) : cost;
  }

 private:
  double copies_price(ValueId id, const graph::Form& form, double update);
  double least_change(ValueId value, const graph::Form& from, const graph::Form& to, Wanted wanted,
                      const std::pair<unsigned, unsigned>& bounds);
  double weight(unsigned bounds) const;
  /// Returns the mean over classes of parts of an extent; 0: of the whole.
  double mean(const std::vector<PartTime>& times, std::int64_t extent) const;
  PartRange range(std::size_t device_class, std::int64_t extent) const {
    return part_range(objective_.kinds[device_class].share, space_.global_batch, extent);
  }
  std::vector<double> sample_slopes(OpId op, unsigned compute);
  double mean_compute(OpId op, const graph::Strategy& way, double weight);
  double mean_update(ValueId parameter, const graph::Form& kept);

  const graph::Graph& graph_;
  const SpmdSpace& space_;
  SpmdPrices& prices_;
  const SpmdObjective& objective_;
  /// For a bound, by operator and class: prices of parts of the samples. They sum to 0 over all
  /// operators (empty: none), so that equal parts cost nothing.
  std::vector<std::vector<double>> slopes_;
};

}  // namespace motley::search
