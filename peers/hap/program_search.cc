#include "peers/hap/program_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <span>

#include "motley/base/check.h"

namespace motley::peers {
namespace {

/// How one live tensor is held: bits of its forms, and kFixed when it may not change any more.
using Held = std::uint16_t;
constexpr Held kFixed = 0x8000;

constexpr std::int32_t kNone = -1;

/// Returns whether a time is less, beyond differences from the order of summation.
bool is_less(double seconds, double other) { return seconds < other * (1 - 1e-13); }

/// What later readers can do with a tensor.
struct Use {
  HapFormSet wanted;       // forms that some reader takes
  HapFormSet convertible;  // forms that can become a wanted one
};

/// An operator between boundaries. Places are live tensors before it, its loads, its outputs.
struct Stage {
  std::size_t op = 0;
  std::vector<TensorId> working;    // the tensor at each place
  std::size_t live = 0;             // number of places live before the operator
  std::vector<std::size_t> inputs;  // place of each input
  std::size_t first_output = 0;     // place of output 0
  std::vector<std::size_t> kept;    // places live after it, in order
  std::vector<Use> uses;            // of the kept ones, by later operators
};

/// Marks the operators that the loss depends on.
std::vector<bool> needed_operators(const ReferenceGraph& graph) {
  std::vector<bool> is_read(graph.tensors.size()), is_needed(graph.operators.size());
  is_read[graph.loss.index()] = true;
  for (std::size_t i = graph.operators.size(); i-- > 0;) {
    const ReferenceOperator& op = graph.operators[i];
    is_needed[i] = std::any_of(op.outputs.begin(), op.outputs.end(),
                               [&is_read](TensorId id) { return is_read[id.index()]; });
    if (!is_needed[i]) continue;
    for (const TensorId input : op.inputs) is_read[input.index()] = true;
  }
  return is_needed;
}

class ConversionTable {
 public:
  ConversionTable(const ReferenceTensor& tensor, const HapCost& cost) {
    if (!tensor.communicatable) return;
    std::vector<HapForm> forms = {HapForm::identity(), HapForm::reduce()};
    for (std::size_t d = 0; d < tensor.shape.size(); ++d) forms.push_back(HapForm::gather(d));
    for (const HapForm from : forms)
      for (const HapForm to : forms)
        if (const auto time = cost.conversion(tensor, from, to))
          entries_.push_back({from, to, time->seconds(cost.effect())});
  }
  struct Entry {
    HapForm from, to;
    double seconds;
  };
  /// Finds the cheapest conversion from a held form to `to`; null when there is none.
  const Entry* find(Held held, HapForm to) const {
    const Entry* best = nullptr;
    for (const Entry& entry : entries_)
      if (entry.to == to && HapFormSet{held}.contains(entry.from) &&
          (best == nullptr || entry.seconds < best->seconds))
        best = &entry;
    return best;
  }
  /// Returns the forms that can become one of `wanted`.
  HapFormSet sources(HapFormSet wanted) const {
    HapFormSet result;
    for (const Entry& entry : entries_)
      if (wanted.contains(entry.to)) result.insert(entry.from);
    return result;
  }

 private:
  std::vector<Entry> entries_;
};

/// States at a boundary between operators: unique rows of `width` entries.
class StateSet {
 public:
  explicit StateSet(std::size_t width) : width_(width), table_(64, kNone) {}

  struct Origin {
    std::int32_t parent = kNone, triple = kNone;
  };
  std::size_t size() const { return seconds_.size(); }
  std::span<const Held> row(std::size_t state) const {
    return {rows_.data() + state * width_, width_};
  }
  double seconds(std::size_t state) const { return seconds_[state]; }
  Origin origin(std::size_t state) const { return origins_[state]; }

  /// Keeps the cheaper of two equal rows, or the earlier one at equal cost.
  void add(std::span<const Held> row, double seconds, Origin origin) {
    const std::size_t slot = find_slot(row);
    if (table_[slot] != kNone) {
      const auto known = static_cast<std::size_t>(table_[slot]);
      if (!is_less(seconds, seconds_[known])) return;
      seconds_[known] = seconds;
      origins_[known] = origin;
      return;
    }
    table_[slot] = static_cast<std::int32_t>(size());
    rows_.insert(rows_.end(), row.begin(), row.end());
    seconds_.push_back(seconds);
    origins_.push_back(origin);
    if (2 * size() > table_.size()) grow();
  }

 private:
  std::size_t find_slot(std::span<const Held> wanted) const {
    std::uint64_t hash = 1469598103934665603u;
    for (const Held held : wanted) hash = (hash ^ held) * 1099511628211u;
    std::size_t slot = (hash ^ hash >> 29) & (table_.size() - 1);
    while (table_[slot] != kNone &&
           !std::ranges::equal(row(static_cast<std::size_t>(table_[slot])), wanted))
      slot = (slot + 1) & (table_.size() - 1);
    return slot;
  }
  void grow() {
    table_.assign(2 * table_.size(), kNone);
    for (std::size_t state = 0; state < size(); ++state)
      table_[find_slot(row(state))] = static_cast<std::int32_t>(state);
  }

  std::size_t width_;
  std::vector<Held> rows_;
  std::vector<double> seconds_;
  std::vector<Origin> origins_;
  std::vector<std::int32_t> table_;
};

class Search {
 public:
  Search(const ReferenceGraph& graph, const std::vector<OperatorRules>& rules, const HapCost& cost)
      : graph_(graph), rules_(rules), cost_(cost) {
    for (const ReferenceTensor& tensor : graph.tensors) conversions_.emplace_back(tensor, cost);
    lay_out();
  }

  Result<SpmdProgram> run() {
    boundaries_.emplace_back(0);
    boundaries_.back().add({}, 0, {});
    std::int64_t expansions = 0;
    for (const Stage& stage : stages_) {
      boundaries_.emplace_back(stage.kept.size());
      StateSet& before = boundaries_[boundaries_.size() - 2];
      expansions += static_cast<std::int64_t>(before.size());
      expand(stage, before, boundaries_.back());
      if (boundaries_.back().size() == 0) {
        return tl::make_unexpected(
            Error{ErrorKind::kInfeasible, "search.hap-program",
                  fmt::format("operator {} ({}): no program of the rules passes it", stage.op,
                              graph_.operators[stage.op].kind)});
      }
    }
    SpmdProgram program = trace_back();
    program.expansions = expansions;
    return program;
  }

 private:
  /// Makes stages with their places and, from last to first, the uses of later readers.
  void lay_out() {
    const std::vector<bool> is_needed = needed_operators(graph_);
    std::vector<std::size_t> last_reader(graph_.tensors.size(), 0);
    for (std::size_t i = 0; i < graph_.operators.size(); ++i) {
      if (!is_needed[i]) continue;
      for (const TensorId input : graph_.operators[i].inputs) last_reader[input.index()] = i;
    }
    last_reader[graph_.loss.index()] = graph_.operators.size();
    std::vector<TensorId> live;
    for (std::size_t i = 0; i < graph_.operators.size(); ++i)
      if (is_needed[i]) stages_.push_back(lay_out_stage(i, last_reader, live));
    std::vector<HapFormSet> wanted(graph_.tensors.size());
    wanted[graph_.loss.index()].insert(HapForm::reduce());
    for (std::size_t k = stages_.size(); k-- > 0;) {
      Stage& stage = stages_[k];
      for (const std::size_t place : stage.kept) {
        const std::size_t tensor = stage.working[place].index();
        stage.uses.push_back({wanted[tensor], conversions_[tensor].sources(wanted[tensor])});
      }
      add_wanted(stage.op, wanted);
    }
  }

  Stage lay_out_stage(std::size_t op, const std::vector<std::size_t>& last_reader,
                      std::vector<TensorId>& live) const {
    Stage stage{op, live, live.size(), {}, 0, {}, {}};
    std::vector<TensorId>& working = stage.working;
    for (const TensorId input : graph_.operators[op].inputs) {
      const auto found = std::find(working.begin(), working.end(), input);
      stage.inputs.push_back(static_cast<std::size_t>(found - working.begin()));
      if (found == working.end()) working.push_back(input);
    }
    stage.first_output = working.size();
    for (const TensorId output : graph_.operators[op].outputs) working.push_back(output);
    live.clear();
    for (std::size_t place = 0; place < working.size(); ++place) {
      if (last_reader[working[place].index()] <= op) continue;
      stage.kept.push_back(place);
      live.push_back(working[place]);
    }
    return stage;
  }

  void add_wanted(std::size_t op, std::vector<HapFormSet>& wanted) const {
    const std::vector<TensorId>& inputs = graph_.operators[op].inputs;
    for (const Triple& triple : rules_[op].triples)
      for (std::size_t i = 0; i < inputs.size(); ++i)
        if (triple.pre[i]) wanted[inputs[i].index()].insert(*triple.pre[i]);
  }

  void expand(const Stage& stage, const StateSet& before, StateSet& after) {
    const std::vector<Triple>& triples = rules_[stage.op].triples;
    std::vector<double> compute;
    for (const Triple& triple : triples)
      compute.push_back(cost_.compute(triple).seconds(cost_.effect()));
    for (std::size_t state = 0; state < before.size(); ++state) {
      for (std::size_t t = 0; t < triples.size(); ++t) {
        start(stage, before.row(state));
        const auto inputs = meet(stage, triples[t], nullptr);
        if (!inputs || !finish(stage, triples[t])) continue;
        after.add(next_, before.seconds(state) + compute[t] + *inputs,
                  {static_cast<std::int32_t>(state), static_cast<std::int32_t>(t)});
      }
    }
  }

  void start(const Stage& stage, std::span<const Held> row) {
    working_.assign(row.begin(), row.end());
    working_.resize(stage.working.size(), 0);
  }

  /// Gives the triple its inputs by loads and conversions; returns their time, or none.
  std::optional<double> meet(const Stage& stage, const Triple& triple, SpmdStep* step) {
    double seconds = 0;
    for (std::size_t i = 0; i < stage.inputs.size(); ++i) {
      if (!triple.pre[i]) continue;
      const auto added = meet_input(stage.working[stage.inputs[i]], working_[stage.inputs[i]],
                                    *triple.pre[i], step);
      if (!added) return {};
      seconds += *added;
    }
    return seconds;
  }

  std::optional<double> meet_input(TensorId id, Held& held, HapForm wanted, SpmdStep* step) {
    if (HapFormSet{held}.contains(wanted)) return 0;
    const ReferenceTensor& tensor = graph_.tensors[id.index()];
    if (tensor.role != TensorRole::kActivation) {
      const std::optional<LinearTime> time = cost_.load(tensor, wanted);
      if (held != 0 || !time) return {};
      held = wanted.bit() | kFixed;
      if (step != nullptr) step->loads.push_back({id, wanted});
      return time->seconds(cost_.effect());
    }
    if ((held & kFixed) != 0) return {};
    const ConversionTable::Entry* entry = conversions_[id.index()].find(held, wanted);
    if (entry == nullptr) return {};
    held |= wanted.bit() | kFixed;
    if (step != nullptr) step->conversions.push_back({id, entry->from, entry->to});
    return entry->seconds;
  }

  /// Adds outputs and fills `next_`; false when a tensor to be read has no usable form.
  bool finish(const Stage& stage, const Triple& triple) {
    for (std::size_t i = 0; i < triple.post.size(); ++i)
      working_[stage.first_output + i] = triple.post[i].bit();
    next_.clear();
    for (std::size_t i = 0; i < stage.kept.size(); ++i) {
      Held held = working_[stage.kept[i]];
      const Use& use = stage.uses[i];
      if (held != 0) {
        if ((held & use.convertible.bits) == 0) held |= kFixed;
        held &= (held & kFixed) != 0 ? use.wanted.bits | kFixed
                                     : use.wanted.bits | use.convertible.bits;
        if (held == kFixed) return false;
      }
      next_.push_back(held);
    }
    return true;
  }

  SpmdProgram trace_back() {
    const StateSet& last = boundaries_.back();
    std::size_t state = 0;
    for (std::size_t other = 1; other < last.size(); ++other)
      if (is_less(last.seconds(other), last.seconds(state))) state = other;
    std::vector<std::pair<std::size_t, std::size_t>> path;  // state before, triple
    for (std::size_t k = stages_.size(); k > 0; --k) {
      const StateSet::Origin origin = boundaries_[k].origin(state);
      state = static_cast<std::size_t>(origin.parent);
      path.emplace_back(state, static_cast<std::size_t>(origin.triple));
    }
    std::reverse(path.begin(), path.end());
    SpmdProgram program;
    for (std::size_t k = 0; k < stages_.size(); ++k) {
      const Stage& stage = stages_[k];
      SpmdStep step{stage.op, path[k].second, {}, {}};
      start(stage, boundaries_[k].row(path[k].first));
      MOTLEY_CHECK(meet(stage, rules_[stage.op].triples[step.triple], &step).has_value());
      program.time += time_of(step);
      program.steps.push_back(std::move(step));
    }
    program.seconds = program.time.seconds(cost_.effect());
    return program;
  }

  LinearTime time_of(const SpmdStep& step) const {
    LinearTime time = cost_.compute(rules_[step.op].triples[step.triple]);
    for (const Load& load : step.loads)
      time += *cost_.load(graph_.tensors[load.tensor.index()], load.form);
    for (const HapConversion& conversion : step.conversions)
      time += *cost_.conversion(graph_.tensors[conversion.tensor.index()], conversion.from,
                                conversion.to);
    return time;
  }

  const ReferenceGraph& graph_;
  const std::vector<OperatorRules>& rules_;
  const HapCost& cost_;
  std::vector<ConversionTable> conversions_;  // of each tensor
  std::vector<Stage> stages_;
  std::vector<StateSet> boundaries_;  // before stage 0, and after each
  std::vector<Held> working_, next_;
};

}  // namespace

Result<SpmdProgram> find_program(const ReferenceGraph& graph,
                                 const std::vector<OperatorRules>& rules, const HapCost& cost) {
  MOTLEY_CHECK(rules.size() == graph.operators.size());
  return Search(graph, rules, cost).run();
}

}  // namespace motley::peers
