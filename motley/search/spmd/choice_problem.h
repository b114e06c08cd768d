#pragma once

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "motley/graph/graph.h"
#include "motley/search/spmd/bound_terms.h"
#include "motley/search/spmd/choice_pricing.h"
#include "motley/search/spmd/elimination.h"
#include "motley/search/spmd/prices.h"
#include "motley/search/spmd/space.h"
#include "motley/synth/step/sharding.h"

namespace motley::search {

/// The choice of a way for every operator and a form for every parameter, as tables over variables:
/// one per operator, one per parameter, and for each value with several readers one for the form
/// made ready for them besides its own.
///
/// A reader pays nothing for the form in which its value is made, or for a ready form, whose making
/// is paid once. A reader of any other form pays for it alone. One form is made ready, or two if
/// four or more readers need at most four forms. As lowering makes each form once, this is exact
/// unless two readers share another form. For a bound such readers pay 1 / floor(readers / (1 +
/// ready forms)) of it, which no sharing undercuts.
///
/// A representative of several operators or values (SpmdSpace::op_count) costs as much as all of
/// them.
///
/// Variables, tables and the elimination order depend only on the space. Costs are computed for
/// prices and an objective, once for equal ones.
class ChoiceProblem {
 public:
  /// Graph and space must outlive it. `terms`: for bounds.
  ChoiceProblem(const graph::Graph& graph, const SpmdSpace& space,
                std::optional<BoundTerms> terms = std::nullopt);
  ChoiceProblem(const ChoiceProblem&) = delete;
  ChoiceProblem& operator=(const ChoiceProblem&) = delete;

  TableCosts costs(SpmdPrices& prices, const SpmdObjective& objective) const;
  /// Forbids an operator's other ways.
  void restrict(TableCosts& costs, OpId op,
                const std::function<bool(const graph::Strategy&)>& is_allowed) const;
  TableSolution solve(const TableCosts& costs) const {
    return terms_ ? elimination_->bound(costs) : elimination_->solve(costs);
  }
  const TableLayout& layout() const { return elimination_->layout(); }
  void apply(const std::vector<int>& choice, synth::Sharding& sharding) const;

 private:
  using Key = std::vector<int>;
  using Costs = std::vector<std::vector<double>>;  // by table
  using Fill = std::function<void(ChoicePricing&, Costs&)>;

  /// A form that depends on one variable.
  struct Formed {
    int variable = -1;  ///< -1: always the first form
    std::vector<graph::Form> forms;
  };
  /// A value's producer and readers with their forms.
  struct Changes {
    ValueId value;
    Formed holder;
    std::vector<Formed> readers;
    std::vector<graph::Form> ready;  ///< forms that a reader may need
    std::size_t made = 0;            ///< number of ready forms
  };

  int add_variable(std::size_t domain);
  void add_table(std::vector<int> variables, int costs);
  /// Returns the index of the first of `tables` tables' costs; `fill` adds those of a new key.
  int find_costs(Key key, Fill fill, std::size_t tables = 1);
  void add_operators();
  void add_parameters();
  void add_value(ValueId value);
  void add_saved(ValueId value, const Formed& holder);
  void add_changes(Changes changes);
  void add_bound_change(const BoundTerms::Change& change);
  void fill_changes(const Changes& changes, ChoicePricing& pricing, Costs& costs) const;
  Key source_key(ValueId source) const;
  Key value_key(ValueId value) const;
  Formed formed_by(OpId op, std::vector<graph::Form> graph::Strategy::*side,
                   std::size_t place) const;
  Formed holder_of(ValueId value) const;
  Formed reader_of(const Reader& reader) const;

  const graph::Graph& graph_;
  const SpmdSpace& space_;
  const std::optional<BoundTerms> terms_;
  TableLayout tables_;                   // until the order is found
  std::vector<int> of_table_;            // index of its costs
  std::vector<int> of_op_, of_source_;   // variables; -1: a single choice
  std::vector<std::size_t> ways_table_;  // by operator: the table of its ways alone
  std::map<Key, int> first_costs_;
  std::vector<Fill> fills_;  // in the order of their costs
  int costs_ = 0;            // their total number
  std::optional<Elimination> elimination_;
};

}  // namespace motley::search
