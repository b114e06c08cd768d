#include "motley/search/spmd/choice_problem.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace motley::search {

using graph::Form;
using graph::FormKind;
using graph::Strategy;

namespace {

/// Forms up to which a value of four readers or more has two that are made ready.
constexpr std::size_t kMostReadyTwice = 4;

}  // namespace

ChoiceProblem::ChoiceProblem(const graph::Graph& graph, const SpmdSpace& space, SpmdPrices& prices,
                             const SpmdObjective& objective)
    : graph_(graph),
      space_(space),
      prices_(prices),
      objective_(objective),
      of_op_(graph.ops.size(), -1),
      of_source_(graph.values.size(), -1) {
  add_operators();
  add_sources();
  for (std::size_t v = 0; v < graph_.values.size(); ++v)
    add_value(ValueId(static_cast<std::int64_t>(v)));
}

int ChoiceProblem::add_variable(std::size_t domain) {
  tables_.domains.push_back(static_cast<int>(domain));
  return static_cast<int>(tables_.domains.size()) - 1;
}

void ChoiceProblem::add_table(std::vector<int> variables, std::vector<double> cost) {
  if (std::all_of(cost.begin(), cost.end(), [](double each) { return each == 0; })) return;
  tables_.tables.push_back({std::move(variables), std::move(cost)});
}

/// Of what takes time on each class; a bound leaves it out.
double ChoiceProblem::slowest(const std::vector<double>& by_class) const {
  return objective_.is_bound ? 0 : *std::max_element(by_class.begin(), by_class.end());
}

double ChoiceProblem::operator_cost(OpId op, const Strategy& way) {
  if (!objective_.is_bound)
    return objective_.compute * slowest(prices_.compute(op, way)) +
           objective_.exchange * prices_.inner_exchanges(op, way);
  const std::vector<double>& whole = prices_.compute(op, space_.ways[op.index()][0]);
  const double weight = objective_.compute + (objective_.on_path[op.index()] ? objective_.path : 0);
  if (weight == 0) return 0;
  // Devices take at least their launch, which pays for a part of launch / whole; the rest goes to
  // where it weighs least.
  double sum = 0, launches = 0, paid = 0, least = std::numeric_limits<double>::infinity();
  for (std::size_t c = 0; c < whole.size(); ++c) {
    const double of_class = objective_.class_weights[c];
    const int count = prices_.classes()[c].count;
    const double launch = std::min(prices_.launch(op, c), whole[c]);
    sum += of_class * whole[c];
    launches += of_class * launch;
    paid += whole[c] > 0 ? count * launch / whole[c] : count;
    least = std::min(least, of_class / count * whole[c]);
  }
  return weight * (way.factor < 0 ? sum : launches + least * std::max(0.0, 1 - paid));
}

void ChoiceProblem::add_operators() {
  for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
    if (!space_.is_needed[i]) continue;
    const OpId id(static_cast<std::int64_t>(i));
    const int variable = of_op_[i] = add_variable(space_.ways[i].size());
    std::vector<double> cost;
    for (const Strategy& way : space_.ways[i]) cost.push_back(operator_cost(id, way));
    add_table({variable}, std::move(cost));
  }
}

double ChoiceProblem::memory_price(ValueId value, const Form& form, double copies) {
  if (objective_.seconds_per_byte == 0) return 0;
  double most = 0;
  for (std::size_t c = 0; c < prices_.classes().size(); ++c)
    most = std::max(most, prices_.bytes(value, form, c));
  return objective_.seconds_per_byte * copies * most;
}

void ChoiceProblem::add_sources() {
  for (std::size_t v = 0; v < graph_.values.size(); ++v) {
    const std::vector<Form>& kept = space_.kept[v];
    if (kept.empty() || graph_.values[v].role != graph::ValueRole::kParameter) continue;
    const ValueId id(static_cast<std::int64_t>(v));
    const int variable = of_source_[v] = add_variable(kept.size());
    std::vector<double> cost;
    for (const Form& form : kept)
      cost.push_back(objective_.compute * slowest(prices_.update(id, form, objective_.states)) +
                     memory_price(id, form, 2.0 + objective_.states));
    add_table({variable}, std::move(cost));
  }
}

ChoiceProblem::Formed ChoiceProblem::holder_of(ValueId value) const {
  const OpId producer = graph_.value(value).producer;
  if (producer.is_none()) return {of_source_[value.index()], space_.kept[value.index()]};
  const auto& outputs = graph_.op(producer).outputs;
  const auto result =
      static_cast<std::size_t>(std::find(outputs.begin(), outputs.end(), value) - outputs.begin());
  Formed formed{of_op_[producer.index()], {}};
  for (const Strategy& way : space_.ways[producer.index()])
    formed.forms.push_back(way.results[result]);
  return formed;
}

ChoiceProblem::Formed ChoiceProblem::reader_of(const Reader& reader) const {
  if (reader.op.is_none()) {
    const graph::Output& output = graph_.outputs[static_cast<std::size_t>(reader.operand)];
    if (output.kind != graph::OutputKind::kGradient) return {-1, {graph::kWholeForm}};
    return {of_source_[output.of.index()], space_.kept[output.of.index()]};
  }
  Formed formed{of_op_[reader.op.index()], {}};
  for (const Strategy& way : space_.ways[reader.op.index()])
    formed.forms.push_back(way.operands[static_cast<std::size_t>(reader.operand)]);
  return formed;
}

double ChoiceProblem::price(ValueId value, const Form& from, const Form& to, bool is_gradient) {
  if (from == to) return 0;
  const ConversionTime& time = prices_.conversion(value, from, to);
  std::vector<double> copies = time.before;
  for (std::size_t c = 0; c < copies.size(); ++c) copies[c] += time.after[c];
  const double weight = is_gradient ? objective_.gradient_exchange : objective_.exchange;
  return objective_.compute * slowest(copies) + weight * time.exchange;
}

/// The change of form between two operators of the chain counts whether or not it is made anyway.
void ChoiceProblem::add_path_edge(ValueId value, const Formed& holder, const Reader& reader) {
  if (objective_.path == 0 || reader.op.is_none() ||
      objective_.enters_by[reader.op.index()] != value)
    return;
  const auto& operands = space_.rules[reader.op.index()].operands;
  if (std::find(operands.begin(), operands.end(), value) - operands.begin() != reader.operand)
    return;  // it reads the value twice
  const Formed wanted = reader_of(reader);
  std::vector<double> cost;
  for (const Form& from : holder.forms)
    for (const Form& to : wanted.forms)
      cost.push_back(objective_.path * prices_.conversion(value, from, to).exchange);
  add_table({holder.variable, wanted.variable}, std::move(cost));
}

/// Made in forward and read in backward, so that it lies in memory at the peak.
bool ChoiceProblem::is_saved(ValueId value) const {
  const OpId producer = graph_.value(value).producer;
  if (producer.is_none() || graph_.op(producer).direction != graph::Direction::kForward)
    return false;
  const auto& readers = space_.readers[value.index()];
  return std::any_of(readers.begin(), readers.end(), [&](const Reader& reader) {
    return !reader.op.is_none() && graph_.op(reader.op).direction == graph::Direction::kBackward;
  });
}

void ChoiceProblem::add_value(ValueId value) {
  const std::vector<Reader>& readers = space_.readers[value.index()];
  if (readers.empty()) return;
  const Formed holder = holder_of(value);
  if (holder.variable >= 0 && objective_.seconds_per_byte > 0 && is_saved(value)) {
    std::vector<double> cost;
    for (const Form& form : holder.forms) cost.push_back(memory_price(value, form, 1));
    add_table({holder.variable}, std::move(cost));
  }
  for (const Reader& reader : readers) add_path_edge(value, holder, reader);
  std::vector<Formed> formed;
  std::vector<Form> ready;  // forms that some reader may want
  for (const Reader& reader : readers) {
    formed.push_back(reader_of(reader));
    for (const Form& form : formed.back().forms)
      if (std::find(ready.begin(), ready.end(), form) == ready.end()) ready.push_back(form);
  }
  const bool never_changes =
      ready.size() == 1 && std::all_of(holder.forms.begin(), holder.forms.end(),
                                       [&](const Form& form) { return form == ready[0]; });
  if (never_changes) return;
  // The variables that the tables are between: the holder's, those of what is made ready, the
  // readers'. Values of one kind have the same tables.
  const std::size_t made = readers.size() < 2                                      ? 0
                           : readers.size() > 3 && ready.size() <= kMostReadyTwice ? 2
                                                                                   : 1;
  std::vector<int> places = {holder.variable};
  for (std::size_t m = 0; m < made; ++m) places.push_back(add_variable(ready.size() + 1));
  for (const Formed& reader : formed) places.push_back(reader.variable);
  const auto [known, is_new] = conversions_.try_emplace(value_key(value));
  if (is_new) {
    for (auto& [at, cost] : conversion_tables(value, holder, formed, ready, made)) {
      known->second.emplace_back(at, static_cast<int>(tables_.tables.size()));
      tables_.tables.push_back({at_places(places, at), std::move(cost)});
    }
  } else {
    for (const auto& [at, table] : known->second)
      tables_.tables.push_back({at_places(places, at), {}, table});
  }
}

std::vector<int> ChoiceProblem::at_places(const std::vector<int>& places,
                                          const std::vector<std::size_t>& at) {
  std::vector<int> variables;
  for (const std::size_t place : at) variables.push_back(places[place]);
  return variables;
}

/// Says which forms and prices a value's tables have: its own kind, who makes it, who reads it.
std::vector<int> ChoiceProblem::value_key(ValueId value) const {
  const auto source = [&](ValueId id) {
    std::vector<int> key = {space_.value_kind[id.index()], of_source_[id.index()] >= 0};
    for (const Form& form : space_.kept[id.index()])
      key.insert(key.end(), {static_cast<int>(form.kind), form.dim, static_cast<int>(form.outer),
                             static_cast<int>(form.extent), static_cast<int>(form.inner)});
    return key;
  };
  const OpId producer = graph_.value(value).producer;
  std::vector<int> key = {space_.value_kind[value.index()]};
  if (producer.is_none()) {
    const auto kept = source(value);
    key.insert(key.end(), kept.begin(), kept.end());
  } else {
    const auto& outputs = graph_.op(producer).outputs;
    key.push_back(space_.kind_of[producer.index()]);
    key.push_back(
        static_cast<int>(std::find(outputs.begin(), outputs.end(), value) - outputs.begin()));
  }
  for (const Reader& reader : space_.readers[value.index()]) {
    key.push_back(-1);
    if (!reader.op.is_none()) {
      key.insert(key.end(), {space_.kind_of[reader.op.index()], reader.operand});
      continue;
    }
    const graph::Output& output = graph_.outputs[static_cast<std::size_t>(reader.operand)];
    key.push_back(-2);
    if (output.kind != graph::OutputKind::kGradient) continue;
    const auto kept = source(output.of);
    key.insert(key.end(), kept.begin(), kept.end());
  }
  return key;
}

/// Tables over places (0 the holder, then what is made ready, then the readers); the forms made
/// ready are each none or one of `ready`. What has no variable is left out.
std::vector<ChoiceProblem::PlacedTable> ChoiceProblem::conversion_tables(
    ValueId value, const Formed& holder, const std::vector<Formed>& formed,
    const std::vector<Form>& ready, std::size_t made) {
  const std::vector<Reader>& readers = space_.readers[value.index()];
  const auto is_gradient = [&](std::size_t r) { return readers[r].op.is_none(); };
  std::vector<PlacedTable> tables;
  const auto add = [&](std::vector<std::size_t> at, std::vector<double> cost) {
    const bool is_free =
        std::all_of(cost.begin(), cost.end(), [](double each) { return each == 0; });
    if (!at.empty() && !is_free) tables.emplace_back(std::move(at), std::move(cost));
  };
  std::vector<std::size_t> shared;
  if (holder.variable >= 0) shared.push_back(0);
  bool all_gradients = true;
  for (std::size_t r = 0; r < readers.size(); ++r) all_gradients = all_gradients && is_gradient(r);
  for (std::size_t m = 0; m < made; ++m) {
    std::vector<std::size_t> at;
    if (holder.variable >= 0) at.push_back(0);
    at.push_back(1 + m);
    shared.push_back(1 + m);
    std::vector<double> cost;
    for (const Form& form : holder.forms) {
      cost.push_back(0);
      for (const Form& to : ready) cost.push_back(price(value, form, to, all_gradients));
    }
    add(std::move(at), std::move(cost));
  }
  std::size_t combinations = 1;  // of what is made ready
  for (std::size_t m = 0; m < made; ++m) combinations *= ready.size() + 1;
  const std::size_t most_sharing = readers.size() / (made + 1);
  const double share =
      objective_.is_bound && most_sharing > 1 ? 1.0 / static_cast<double>(most_sharing) : 1.0;
  for (std::size_t r = 0; r < readers.size(); ++r) {
    std::vector<std::size_t> at = shared;
    if (formed[r].variable >= 0) at.push_back(1 + made + r);
    std::vector<double> cost;
    for (const Form& home : holder.forms)
      for (std::size_t b = 0; b < combinations; ++b)
        for (const Form& wanted : formed[r].forms) {
          bool is_ready = false;
          for (std::size_t rest = b, m = 0; m < made; ++m, rest /= ready.size() + 1)
            if (const std::size_t form = rest % (ready.size() + 1))
              is_ready = is_ready || ready[form - 1] == wanted;
          cost.push_back(is_ready ? 0 : share * price(value, home, wanted, is_gradient(r)));
        }
    add(std::move(at), std::move(cost));
  }
  return tables;
}

void ChoiceProblem::restrict(OpId op, const std::function<bool(const Strategy&)>& is_allowed) {
  if (of_op_[op.index()] < 0) return;
  std::vector<double> cost;
  for (const Strategy& way : space_.ways[op.index()])
    cost.push_back(is_allowed(way) ? 0 : std::numeric_limits<double>::infinity());
  add_table({of_op_[op.index()]}, std::move(cost));
}

void ChoiceProblem::apply(const std::vector<int>& choice, synth::Sharding& sharding) const {
  sharding.global_batch = space_.global_batch;
  sharding.ops.clear();
  for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
    const auto way =
        of_op_[i] < 0
            ? whole_strategy(space_.rules[i])
            : space_.ways[i][static_cast<std::size_t>(choice[static_cast<std::size_t>(of_op_[i])])];
    sharding.ops.push_back(way);
  }
  sharding.sources.assign(graph_.values.size(), graph::kWholeForm);
  for (std::size_t v = 0; v < graph_.values.size(); ++v) {
    if (space_.kept[v].empty()) continue;
    const int variable = of_source_[v];
    sharding.sources[v] = space_.kept[v][static_cast<std::size_t>(
        variable < 0 ? 0 : choice[static_cast<std::size_t>(variable)])];
  }
}

}  // namespace motley::search
