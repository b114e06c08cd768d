#pragma once

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "motley/graph/graph.h"
#include "motley/search/spmd/bound_terms.h"
#include "motley/search/spmd/elimination.h"
#include "motley/search/spmd/mean_time.h"
#include "motley/search/spmd/prices.h"
#include "motley/search/spmd/space.h"
#include "motley/synth/step/sharding.h"

namespace motley::search {

/// A kind of devices, for a bound: how many at most, their weight together (all kinds': 1), and
/// what is known of the fullest.
struct BoundedKind {
  int count = 1;
  double weight = 0;
  ShareRange share;
};

/// What a choice of ways costs: a sum over operators, values and parameters.
struct SpmdObjective {
  double compute = 1;            ///< weight of compute, where the slowest class counts
  double exchange = 1;           ///< weight of exchanges
  double gradient_exchange = 1;  ///< of those of gradients, which the rest of backward hides
  double once = 1;               ///< of those of gradients and parameters, which a step has once
                                 ///< however many micro-batches it has
  double seconds_per_byte = 0;   ///< price of memory on the device that holds most
  int states = 0;                ///< tensors that the optimizer keeps beside a parameter
  /// Copies that others keep of each part of a parameter: they are sent its gradient, and do its
  /// update again. Not of bounds.
  int copies = 0;
  /// For bound.h: weights of the bounds (bound_terms.h), in the order of their bits. Nothing then
  /// counts more than it does in any plan, whatever its shares, and compute is the mean over
  /// classes by the weights of `kinds`. Empty: not a bound.
  std::vector<double> bounds;
  std::vector<BoundedKind> kinds;  ///< by class
};

/// The choice of a way for every operator and a form for every parameter, as tables over
/// variables: one an operator, one a parameter, and for each value with several readers one that
/// says in which form it is made ready for them beside its own.
///
/// A reader that wants the form in which its value is made, or one that is made ready, pays
/// nothing; the making pays once; a reader that wants a further form pays for it alone. One form is
/// made ready, or two where four readers or more want at most four forms. As lowering makes each
/// form once, that is exact but where two readers share a further form. For a bound, such readers
/// pay 1 / floor(readers / (1 + made ready)) of it, which no sharing undercuts.
///
/// What stands for several operators or values (SpmdSpace::op_count) costs as much as all of them.
///
/// Variables, tables and the order of elimination depend on the space alone; costs are filled in
/// for prices and an objective, once for all that is equal in them.
class ChoiceProblem {
 public:
  /// The graph and the space must outlive it. `terms`: for bounds.
  ChoiceProblem(const graph::Graph& graph, const SpmdSpace& space,
                std::optional<BoundTerms> terms = std::nullopt);
  ChoiceProblem(const ChoiceProblem&) = delete;
  ChoiceProblem& operator=(const ChoiceProblem&) = delete;

  TableCosts costs(SpmdPrices& prices, const SpmdObjective& objective) const;
  /// Forbids all other ways of an operator.
  void restrict(TableCosts& costs, OpId op,
                const std::function<bool(const graph::Strategy&)>& is_allowed) const;
  TableSolution solve(const TableCosts& costs) const {
    return terms_ ? elimination_->bound(costs) : elimination_->solve(costs);
  }
  const TableLayout& layout() const { return elimination_->layout(); }
  /// Fills in ways and kept forms.
  void apply(const std::vector<int>& choice, synth::Sharding& sharding) const;

 private:
  class Pricing;
  using Key = std::vector<int>;
  using Costs = std::vector<std::vector<double>>;  // by table
  /// Adds the costs of one or more tables.
  using Fill = std::function<void(Pricing&, Costs&)>;

  /// What has a form that depends on one variable.
  struct Formed {
    int variable = -1;  ///< none: it has the first form
    std::vector<graph::Form> forms;
  };
  /// Who wants a value in which forms.
  struct Changes {
    ValueId value;
    Formed holder;
    std::vector<Formed> readers;
    std::vector<graph::Form> ready;  ///< forms that some reader may want
    std::size_t made = 0;            ///< how many of them are made ready
  };

  int add_variable(std::size_t domain);
  void add_table(std::vector<int> variables, int costs);
  /// Position of the costs of the first of so many tables; if the key is new, `fill` adds them.
  int find_costs(Key key, Fill fill, std::size_t tables = 1);
  void add_operators();
  void add_parameters();
  void add_value(ValueId value);
  void add_saved(ValueId value, const Formed& holder);
  void add_changes(Changes changes);
  void add_bound_change(const BoundTerms::Change& change);
  void fill_changes(const Changes& changes, Pricing& pricing, Costs& costs) const;
  Key source_key(ValueId source) const;
  Key value_key(ValueId value) const;
  Formed holder_of(ValueId value) const;
  Formed reader_of(const Reader& reader) const;
  bool is_saved(ValueId value) const;

  const graph::Graph& graph_;
  const SpmdSpace& space_;
  const std::optional<BoundTerms> terms_;
  TableLayout tables_;                   // until the order is found
  std::vector<int> of_table_;            // its costs
  std::vector<int> of_op_, of_source_;   // variables; -1: one choice only
  std::vector<std::size_t> ways_table_;  // by operator: the table of its ways alone
  std::map<Key, int> first_costs_;
  std::vector<Fill> fills_;  // in the order of what they add
  int costs_ = 0;            // how many they add
  std::optional<Elimination> elimination_;
};

}  // namespace motley::search
