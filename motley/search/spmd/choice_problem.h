#pragma once

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "motley/graph/graph.h"
#include "motley/search/spmd/elimination.h"
#include "motley/search/spmd/prices.h"
#include "motley/search/spmd/space.h"
#include "motley/synth/sharding.h"

namespace motley::search {

/// What a choice of ways costs: a sum over operators, values and parameters.
struct SpmdObjective {
  double compute = 1;            ///< weight of compute, where the slowest class counts
  double exchange = 1;           ///< weight of exchanges
  double gradient_exchange = 1;  ///< of those of gradients, which the rest of backward hides
  double seconds_per_byte = 0;   ///< price of memory on the device that holds most
  int states = 0;                ///< tensors that the optimizer keeps beside a parameter
  /// For bound.h: nothing counts more than it does in any plan, whatever its shares. Compute is the
  /// mean over classes by `class_weights`, and operators of a chain and the changes of form between
  /// them count by `path` again.
  bool is_bound = false;
  std::vector<double> class_weights;  ///< by class; sum 1
  double path = 0;
  std::vector<char> on_path;       ///< by operator
  std::vector<ValueId> enters_by;  ///< by operator of the chain: what it takes from the one before
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
class ChoiceProblem {
 public:
  ChoiceProblem(const graph::Graph& graph, const SpmdSpace& space, SpmdPrices& prices,
                const SpmdObjective& objective);

  const TableProblem& tables() const { return tables_; }
  /// Forbids all other ways of an operator.
  void restrict(OpId op, const std::function<bool(const graph::Strategy&)>& is_allowed);
  /// Fills in ways and kept forms.
  void apply(const std::vector<int>& choice, synth::Sharding& sharding) const;

 private:
  /// What has a form that depends on one variable.
  struct Formed {
    int variable = -1;  ///< none: it has the first form
    std::vector<graph::Form> forms;
  };
  int add_variable(std::size_t domain);
  void add_operators();
  void add_sources();
  void add_value(ValueId value);
  using PlacedTable = std::pair<std::vector<std::size_t>, std::vector<double>>;
  std::vector<PlacedTable> conversion_tables(ValueId value, const Formed& holder,
                                             const std::vector<Formed>& formed,
                                             const std::vector<graph::Form>& ready,
                                             std::size_t made);
  std::vector<int> value_key(ValueId value) const;
  static std::vector<int> at_places(const std::vector<int>& places,
                                    const std::vector<std::size_t>& at);
  Formed holder_of(ValueId value) const;
  Formed reader_of(const Reader& reader) const;
  double price(ValueId value, const graph::Form& from, const graph::Form& to, bool is_gradient);
  void add_table(std::vector<int> variables, std::vector<double> cost);
  double slowest(const std::vector<double>& by_class) const;
  double operator_cost(OpId op, const graph::Strategy& way);
  void add_path_edge(ValueId value, const Formed& holder, const Reader& reader);
  double memory_price(ValueId value, const graph::Form& form, double copies);
  bool is_saved(ValueId value) const;

  const graph::Graph& graph_;
  const SpmdSpace& space_;
  SpmdPrices& prices_;
  const SpmdObjective objective_;
  TableProblem tables_;
  std::vector<int> of_op_, of_source_;  // variables; -1: one choice only
  /// By value_key: the tables of the first such value, as places and positions in `tables_`.
  std::map<std::vector<int>, std::vector<std::pair<std::vector<std::size_t>, int>>> conversions_;
};

}  // namespace motley::search
