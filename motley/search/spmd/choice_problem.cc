#include "motley/search/spmd/choice_problem.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "motley/synth/step/conversion.h"

namespace motley::search {

using graph::Form;
using graph::FormKind;
using graph::Strategy;

namespace {

/// With up to this many forms, a value of four or more readers has two ready forms.
constexpr std::size_t kMostReadyTwice = 4;
constexpr std::size_t kMostBoundEntries = 4096;

/// Marks in keys; no kind, operand or form has these numbers.
enum Mark {
  kReader = -1,
  kOutput = -2,
  kOperator = -3,
  kParameter = -4,
  kSaved = -5,
  kValue = -6,
  kBoundChange = -7
};

std::size_t result_of(const graph::Graph& graph, OpId producer, ValueId value) {
  const auto& outputs = graph.op(producer).outputs;
  return static_cast<std::size_t>(std::find(outputs.begin(), outputs.end(), value) -
                                  outputs.begin());
}

/// Is it made in the forward and read in the backward pass, so that it counts at the memory peak?
bool is_saved(const graph::Graph& graph, ValueId value, const std::vector<Reader>& readers) {
  const OpId producer = graph.value(value).producer;
  if (producer.is_none() || graph.op(producer).direction != graph::Direction::kForward)
    return false;
  return std::any_of(readers.begin(), readers.end(), [&](const Reader& reader) {
    return !reader.op.is_none() && graph.op(reader.op).direction == graph::Direction::kBackward;
  });
}

/// Does lowering make both from the whole value, exchanged once? So it does with summed terms.
bool are_made_of_one(const Form& from, const Form& a, const Form& b) {
  const auto is_over_whole = [&](const Form& to) {
    return to == graph::kWholeForm || synth::goes_over_whole(from, to);
  };
  return from.kind == FormKind::kPartial || (is_over_whole(a) && is_over_whole(b));
}

/// Visits all choices of one form per list, the last fastest.
template <typename Do>
void for_each_choice(const std::vector<std::vector<Form>>& choices, const Do& act) {
  std::vector<Form> chosen;
  const auto choose = [&](const auto& self) -> void {
    if (chosen.size() == choices.size()) return act(chosen);
    for (const Form& form : choices[chosen.size()]) {
      chosen.push_back(form);
      self(self);
      chosen.pop_back();
    }
  };
  choose(choose);
}

/// Rounds a count for a key. It may be a fraction: what several micro-batches have once.
int count_key(double count) { return static_cast<int>(std::lround(count * 4096)); }

template <typename T, typename Cost>
std::vector<double> costs_of(const std::vector<T>& choices, const Cost& cost) {
  std::vector<double> costs;
  for (const T& each : choices) costs.push_back(cost(each));
  return costs;
}

}  // namespace

ChoiceProblem::ChoiceProblem(const graph::Graph& graph, const SpmdSpace& space,
                             std::optional<BoundTerms> terms)
    : graph_(graph),
      space_(space),
      terms_(std::move(terms)),
      of_op_(graph.ops.size(), -1),
      of_source_(graph.values.size(), -1),
      ways_table_(graph.ops.size(), 0) {
  add_operators();
  add_parameters();
  for (std::size_t v = 0; v < graph_.values.size(); ++v)
    add_value(ValueId(static_cast<std::int64_t>(v)));
  if (terms_)
    for (const BoundTerms::Change& change : terms_->changes) add_bound_change(change);
  elimination_.emplace(std::move(tables_));
}

int ChoiceProblem::add_variable(std::size_t domain) {
  tables_.domains.push_back(static_cast<int>(domain));
  return static_cast<int>(tables_.domains.size()) - 1;
}

/// Adds a table; one without variables (-1) has a constant cost and is dropped.
void ChoiceProblem::add_table(std::vector<int> variables, int costs) {
  variables.erase(std::remove(variables.begin(), variables.end(), -1), variables.end());
  if (variables.empty()) return;
  tables_.tables.push_back(std::move(variables));
  of_table_.push_back(costs);
}

int ChoiceProblem::find_costs(Key key, Fill fill, std::size_t tables) {
  const auto [known, is_new] = first_costs_.try_emplace(std::move(key), costs_);
  if (is_new) {
    fills_.push_back(std::move(fill));
    costs_ += static_cast<int>(tables);
  }
  return known->second;
}

void ChoiceProblem::add_operators() {
  for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
    if (!space_.is_needed[i]) continue;
    const OpId id(static_cast<std::int64_t>(i));
    const std::vector<Strategy>& ways = space_.ways[i];
    const int variable = of_op_[i] = add_variable(ways.size());
    ways_table_[i] = tables_.tables.size();
    const unsigned compute = terms_ ? terms_->compute[i] : 0, inner = terms_ ? terms_->inner[i] : 0;
    const double count = space_.op_count[i];
    Key key = {kOperator, space_.kind_of[i], static_cast<int>(compute), static_cast<int>(inner),
               count_key(count)};
    const int costs = find_costs(
        std::move(key), [&ways, id, compute, inner, count](ChoicePricing& pricing, Costs& to) {
          to.push_back(costs_of(ways, [&](const Strategy& way) {
            return count * pricing.operator_cost(id, way, compute, inner);
          }));
        });
    add_table({variable}, costs);
  }
}

void ChoiceProblem::add_parameters() {
  for (std::size_t v = 0; v < graph_.values.size(); ++v) {
    const std::vector<Form>& kept = space_.kept[v];
    if (kept.empty() || graph_.values[v].role != graph::ValueRole::kParameter) continue;
    const ValueId id(static_cast<std::int64_t>(v));
    of_source_[v] = add_variable(kept.size());
    const double count = space_.value_count[v];
    Key key = source_key(id);
    key.insert(key.end(), {kParameter, count_key(count)});
    add_table({of_source_[v]},
              find_costs(std::move(key), [&kept, id, count](ChoicePricing& pricing, Costs& to) {
                to.push_back(costs_of(kept, [&](const Form& form) {
                  return count * pricing.parameter_cost(id, form);
                }));
              }));
  }
}

ChoiceProblem::Formed ChoiceProblem::formed_by(OpId op, std::vector<Form> Strategy::*side,
                                               std::size_t place) const {
  Formed formed{of_op_[op.index()], {}};
  for (const Strategy& way : space_.ways[op.index()]) formed.forms.push_back((way.*side)[place]);
  return formed;
}

ChoiceProblem::Formed ChoiceProblem::holder_of(ValueId value) const {
  const OpId producer = graph_.value(value).producer;
  if (producer.is_none()) return {of_source_[value.index()], space_.kept[value.index()]};
  return formed_by(producer, &Strategy::results, result_of(graph_, producer, value));
}

ChoiceProblem::Formed ChoiceProblem::reader_of(const Reader& reader) const {
  const auto place = static_cast<std::size_t>(reader.operand);
  if (!reader.op.is_none()) return formed_by(reader.op, &Strategy::operands, place);
  const graph::Output& output = graph_.outputs[place];
  if (output.kind != graph::OutputKind::kGradient) return {-1, {graph::kWholeForm}};
  return {of_source_[output.of.index()], space_.kept[output.of.index()]};
}

void ChoiceProblem::add_value(ValueId value) {
  const std::vector<Reader>& readers = space_.readers[value.index()];
  if (readers.empty()) return;
  Changes changes{value, holder_of(value), {}, {}, 0};
  if (is_saved(graph_, value, readers)) add_saved(value, changes.holder);
  for (const Reader& reader : readers) {
    changes.readers.push_back(reader_of(reader));
    for (const Form& form : changes.readers.back().forms)
      if (std::find(changes.ready.begin(), changes.ready.end(), form) == changes.ready.end())
        changes.ready.push_back(form);
  }
  const bool never_changes =
      changes.ready.size() == 1 &&
      std::all_of(changes.holder.forms.begin(), changes.holder.forms.end(),
                  [&](const Form& form) { return form == changes.ready[0]; });
  if (never_changes) return;
  if (readers.size() > 1)
    changes.made = readers.size() > 3 && changes.ready.size() <= kMostReadyTwice ? 2 : 1;
  add_changes(std::move(changes));
}

void ChoiceProblem::add_saved(ValueId value, const Formed& holder) {
  const OpId producer = graph_.value(value).producer;
  const double count = space_.value_count[value.index()];
  Key key = {kSaved, space_.kind_of[producer.index()],
             static_cast<int>(result_of(graph_, producer, value)), count_key(count)};
  add_table({holder.variable}, find_costs(std::move(key), [value, count, forms = holder.forms](
                                                              ChoicePricing& pricing, Costs& to) {
              to.push_back(costs_of(forms, [&](const Form& form) {
                return pricing.memory_price(value, form, count);
              }));
            }));
}

/// Adds tables between the value's producer and each ready form, and between these and each reader.
void ChoiceProblem::add_changes(Changes changes) {
  std::vector<int> shared = {changes.holder.variable};
  std::vector<std::vector<int>> tables;
  for (std::size_t m = 0; m < changes.made; ++m) {
    shared.push_back(add_variable(changes.ready.size() + 1));  // none, or one of them
    tables.push_back({changes.holder.variable, shared.back()});
  }
  for (const Formed& reader : changes.readers) {
    tables.push_back(shared);
    tables.back().push_back(reader.variable);
  }
  Key key = value_key(changes.value);
  if (terms_)
    for (const auto& bounds : {terms_->lanes, terms_->copies})
      key.push_back(static_cast<int>(bounds[changes.value.index()]));
  int costs = find_costs(
      std::move(key),
      [this, changes = std::move(changes)](ChoicePricing& pricing, Costs& to) {
        fill_changes(changes, pricing, to);
      },
      tables.size());
  for (std::vector<int>& variables : tables) add_table(std::move(variables), costs++);
}

void ChoiceProblem::fill_changes(const Changes& changes, ChoicePricing& pricing, Costs& to) const {
  const auto& [value, holder, wanting, ready, made] = changes;
  const std::vector<Reader>& readers = space_.readers[value.index()];
  const std::pair<unsigned, unsigned> counts =
      terms_ ? std::pair(terms_->lanes[value.index()], terms_->copies[value.index()])
             : std::pair(0u, 0u);
  const bool all_gradients = std::all_of(readers.begin(), readers.end(),
                                         [](const Reader& reader) { return reader.op.is_none(); });
  const auto wanted_by = [&](bool is_output) {
    return !is_output      ? Wanted::kByOperators
           : all_gradients ? Wanted::kByGradientsAlone
                           : Wanted::kByGradients;
  };
  const auto change_to = [&](const Form& home, const Form& form) {
    return pricing.change_cost(value, home, form, wanted_by(all_gradients), counts);
  };
  for (std::size_t m = 0; m < made; ++m) {
    std::vector<double>& costs = to.emplace_back();
    for (const Form& form : holder.forms) {
      costs.push_back(0);
      for (const Form& each : ready) costs.push_back(change_to(form, each));
    }
  }
  std::size_t combinations = 1;  // of ready forms
  for (std::size_t m = 0; m < made; ++m) combinations *= ready.size() + 1;
  const auto is_ready = [&, &ready = ready, made = made](std::size_t combination,
                                                         const Form& form) {
    for (std::size_t m = 0; m < made; ++m, combination /= ready.size() + 1)
      if (const std::size_t one = combination % (ready.size() + 1);
          one > 0 && ready[one - 1] == form)
        return true;
    return false;
  };
  const std::size_t most_sharing = readers.size() / (made + 1);
  for (std::size_t r = 0; r < readers.size(); ++r) {
    std::vector<double> pays;  // [holder's form][wanted form]
    for (const Form& home : holder.forms)
      for (const Form& form : wanting[r].forms)
        pays.push_back(pricing.shared(
            pricing.change_cost(value, home, form, wanted_by(readers[r].op.is_none()), counts),
            most_sharing));
    std::vector<double>& costs = to.emplace_back();
    const std::size_t forms = wanting[r].forms.size();
    for (std::size_t h = 0; h < holder.forms.size(); ++h)
      for (std::size_t c = 0; c < combinations; ++c)
        for (std::size_t w = 0; w < forms; ++w) {
          const Form &home = holder.forms[h], &form = wanting[r].forms[w];
          double pay = is_ready(c, form) ? 0 : pays[h * forms + w];
          for (std::size_t each = 0; pay > 0 && pricing.is_bound() && each < ready.size(); ++each)
            if (is_ready(c, ready[each]) && are_made_of_one(home, ready[each], form))
              pay = std::min(pay, std::max(0.0, change_to(home, graph::kWholeForm) -
                                                    change_to(home, ready[each])));
          costs.push_back(pay);
        }
  }
}

/// Adds a table between the value's producer and all readers that may start first.
void ChoiceProblem::add_bound_change(const BoundTerms::Change& change) {
  const ValueId value = change.value;
  const Formed holder = holder_of(value);
  std::vector<int> variables = {holder.variable};
  std::vector<std::vector<Form>> wanted;  // by variable
  std::size_t entries = holder.forms.size();
  for (const std::size_t r : change.readers) {
    const Formed reader = reader_of(space_.readers[value.index()][r]);
    if (std::find(variables.begin(), variables.end(), reader.variable) != variables.end())
      return;  // reads the value twice
    variables.push_back(reader.variable);
    wanted.push_back(reader.forms);
    entries *= reader.forms.size();
  }
  if (entries > kMostBoundEntries) return;
  Key key = value_key(value);
  key.push_back(kBoundChange);
  for (const std::size_t r : change.readers) key.push_back(static_cast<int>(r));
  key.push_back(static_cast<int>(change.bounds));
  const int costs =
      find_costs(std::move(key), [value, bounds = change.bounds, holder = holder.forms,
                                  wanted = std::move(wanted)](ChoicePricing& pricing, Costs& to) {
        std::vector<double>& costs = to.emplace_back();
        for (const Form& from : holder)
          for_each_choice(wanted, [&](const std::vector<Form>& forms) {
            costs.push_back(pricing.least_change(value, from, forms, bounds));
          });
      });
  add_table(std::move(variables), costs);
}

/// Returns equal keys for parameters and inputs of the same shape with the same possible forms.
ChoiceProblem::Key ChoiceProblem::source_key(ValueId source) const {
  Key key = {space_.value_kind[source.index()], of_source_[source.index()] >= 0};
  for (const Form& form : space_.kept[source.index()])
    key.insert(key.end(), {static_cast<int>(form.kind), form.dim, static_cast<int>(form.outer),
                           static_cast<int>(form.extent), static_cast<int>(form.inner)});
  return key;
}

/// Returns a key of a value's forms and prices: its kind, producer and readers.
ChoiceProblem::Key ChoiceProblem::value_key(ValueId value) const {
  const OpId producer = graph_.value(value).producer;
  Key key = {kValue, space_.value_kind[value.index()],
             count_key(space_.value_count[value.index()])};
  if (producer.is_none()) {
    const Key source = source_key(value);
    key.insert(key.end(), source.begin(), source.end());
  } else {
    key.insert(key.end(), {space_.kind_of[producer.index()],
                           static_cast<int>(result_of(graph_, producer, value))});
  }
  for (const Reader& reader : space_.readers[value.index()]) {
    key.push_back(kReader);
    if (!reader.op.is_none()) {
      key.insert(key.end(), {space_.kind_of[reader.op.index()], reader.operand});
      continue;
    }
    const graph::Output& output = graph_.outputs[static_cast<std::size_t>(reader.operand)];
    key.push_back(kOutput);
    if (output.kind != graph::OutputKind::kGradient) continue;
    const Key source = source_key(output.of);
    key.insert(key.end(), source.begin(), source.end());
  }
  return key;
}

TableCosts ChoiceProblem::costs(SpmdPrices& prices, const SpmdObjective& objective) const {
  ChoicePricing pricing(graph_, space_, prices, objective);
  if (terms_) pricing.share_samples(*terms_);
  TableCosts costs{of_table_, {}};
  costs.costs.reserve(static_cast<std::size_t>(costs_));
  for (const Fill& fill : fills_) fill(pricing, costs.costs);
  return costs;
}

void ChoiceProblem::restrict(TableCosts& costs, OpId op,
                             const std::function<bool(const Strategy&)>& is_allowed) const {
  if (of_op_[op.index()] < 0) return;
  int& own = costs.of_table[ways_table_[op.index()]];
  std::vector<double> restricted = costs.costs[static_cast<std::size_t>(own)];
  for (std::size_t w = 0; w < restricted.size(); ++w)
    if (!is_allowed(space_.ways[op.index()][w]))
      restricted[w] = std::numeric_limits<double>::infinity();
  own = static_cast<int>(costs.costs.size());
  costs.costs.push_back(std::move(restricted));
}

void ChoiceProblem::apply(const std::vector<int>& choice, synth::Sharding& sharding) const {
  const auto at = [&](int variable) {
    return static_cast<std::size_t>(choice[static_cast<std::size_t>(variable)]);
  };
  sharding.batch = space_.global_batch;
  sharding.ops.clear();
  for (std::size_t i = 0; i < graph_.ops.size(); ++i)
    sharding.ops.push_back(of_op_[i] < 0 ? whole_strategy(space_.rules[i])
                                         : space_.ways[i][at(of_op_[i])]);
  sharding.sources.assign(graph_.values.size(), graph::kWholeForm);
  for (std::size_t v = 0; v < graph_.values.size(); ++v)
    if (!space_.kept[v].empty())
      sharding.sources[v] = space_.kept[v][of_source_[v] < 0 ? 0 : at(of_source_[v])];
}

}  // namespace motley::search
