#include "motley/synth/step/sharded_step.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>

#include "motley/graph/work.h"
#include "motley/program/parts.h"
#include "motley/synth/step/conversion.h"

namespace motley::synth {
namespace {

using graph::Form;
using graph::FormKind;

/// Returns the shared exchange that changes a value's form, if any.
std::optional<Exchange> shared_exchange(const Form& from, const Form& to) {
  const std::string_view exchange = find_exchange(from, to);
  if (exchange == program::kAllReduce) return Exchange::kAllReduce;
  if (exchange == program::kReduceScatter) return Exchange::kReduceScatter;
  if (exchange == program::kAllGather) return Exchange::kAllGather;
  return std::nullopt;
}

/// samples; operators have this batch's order at all batches, so measured times predict others
constexpr std::int64_t kUsualBatch = 32;

class StepPlanner {
 public:
  explicit StepPlanner(ShardedStep& step)
      : step_(step), graph_(step.graph), sharding_(step.sharding) {}

  void plan() {
    find_homes();
    if (sharding_.devices.size() == 1 && step_.part != nullptr) {
      step_.schedule = keep_order(graph_, std::vector<OpNeeds>(graph_.ops.size()),
                                  std::vector<std::optional<Exchange>>(graph_.outputs.size()),
                                  step_.options.bucket_bytes, {});
      step_.wanted.resize(graph_.values.size());
      return;
    }
    if (sharding_.devices.size() == 1) {
      step_.schedule = schedule_alone(graph_);
      step_.wanted.resize(graph_.values.size());
      return;
    }
    find_uses();
    step_.schedule =
        step_.part != nullptr
            ? keep_order(graph_, find_needs(), find_output_needs(), step_.options.bucket_bytes,
                         find_tasks())
            : make_schedule(graph_, {{"batch", kUsualBatch}}, find_needs(), find_output_needs(),
                            {step_.options.bucket_bytes, sharding_.turns});
    find_wanted();
    find_gathers();
    if (step_.part != nullptr) find_last_exchange();
  }

 private:
  struct Use {
    ValueId value;
    Form form;
  };

  void find_uses() {
    uses_.resize(graph_.ops.size());
    for (std::size_t op = 0; op < uses_.size(); ++op) {
      const graph::ShardingRule& rule = step_.rules[op];
      uses_[op].reserve(rule.operands.size());
      for (std::size_t o = 0; o < rule.operands.size(); ++o) {
        if (is_ignored(rule, o)) continue;
        const ValueId value = rule.operands[o];
        const Form& form = sharding_.ops[op].operands[o];
        uses_[op].push_back({value, step_.is_home(value, form) ? home(value) : form});
      }
    }
  }

  void find_homes() {
    step_.held.homes = sharding_.sources;
    for (std::size_t i = 0; i < graph_.ops.size(); ++i)
      step_.held.add(graph_.ops[i], step_.rules[i], sharding_.ops[i]);
    for (const graph::Output& output : graph_.outputs)
      step_.outputs.push_back(output.kind != graph::OutputKind::kGradient ? graph::kWholeForm
                              : stays_in_terms(output)                    ? graph::kPartialForm
                                                       : sharding_.sources[output.of.index()]);
  }

  bool stays_in_terms(const graph::Output& gradient) const {
    return step_.part != nullptr && step_.part->shared.contains(gradient.of) &&
           sharding_.sources[gradient.of.index()] == graph::kWholeForm &&
           home(gradient.value) == graph::kPartialForm;
  }

  const Form& home(ValueId value) const { return step_.home(value); }

  bool counts_labels(std::size_t op) const {
    const graph::Strategy& strategy = sharding_.ops[op];
    return is_nll(graph_.ops[op]) && strategy.factor >= 0 && splits_samples(strategy.operands[0]) &&
           step_.rules[op].factors[static_cast<std::size_t>(strategy.factor)].split ==
               graph::Split::kRewritten;
  }

  /// Is the operand made by an operator and kept in another form?
  bool needs_exchange(const Use& use) const {
    return !graph_.value(use.value).producer.is_none() && home(use.value) != use.form &&
           home(use.value) != graph::kWholeForm;
  }

  std::vector<OpNeeds> find_needs() const {
    std::vector<OpNeeds> needs(graph_.ops.size());
    for (std::size_t i = 0; i < needs.size(); ++i) {
      needs[i].counts_labels = counts_labels(i);
      if (step_.copies != nullptr) needs[i].micro_batch = (*step_.copies)[i].micro_batch;
      const std::vector<Use>& uses = uses_[i];
      for (const Use& use : uses) {
        const bool sums_always = std::all_of(uses.begin(), uses.end(), [&](const Use& other) {
          return other.value != use.value || other.form == graph::kWholeForm;
        });
        if (home(use.value) == graph::kPartialForm && sums_always)
          needs[i].summed.push_back(use.value);
        if (needs_exchange(use)) needs[i].exchanged.push_back(use.value);
      }
    }
    return needs;
  }

  TaskOrder find_tasks() {
    TaskOrder order{&step_.part->tasks, {}, [this](OpId op) { return flops_of(op); }};
    for (const auto& [value, form] : step_.part->given) order.given.push_back(value);
    return order;
  }

  /// Copies of an operator with the same number of samples share the result.
  double flops_of(OpId op) {
    const auto find = [&] { return graph::op_work(graph_, op, graph::Sizes{}).flops.value; };
    if (step_.copies == nullptr || (*step_.copies)[op.index()].of.is_none()) return find();
    const Copy& copy = (*step_.copies)[op.index()];
    const auto [known, is_new] = flops_.try_emplace({copy.of, copy.stretch.count}, 0.0);
    if (is_new) known->second = find();
    return known->second;
  }

  /// Outputs share exchanges if no operator needs their sum or form.
  std::vector<std::optional<Exchange>> find_output_needs() const {
    std::vector<std::vector<Form>> taken(graph_.values.size());
    std::vector<char> is_output(graph_.values.size(), 0);
    for (const graph::Output& output : graph_.outputs) is_output[output.value.index()] = 1;
    for (std::size_t i = 0; i < graph_.ops.size(); ++i)
      for (const Use& use : uses_[i])
        if (is_output[use.value.index()] != 0) taken[use.value.index()].push_back(use.form);
    if (step_.part != nullptr)
      for (const auto& [value, form] : step_.part->given) taken[value.index()].push_back(form);
    std::vector<std::optional<Exchange>> needs(graph_.outputs.size());
    for (std::size_t o = 0; o < needs.size(); ++o) {
      const ValueId value = graph_.outputs[o].value;
      const Form& to = step_.outputs[o];
      const std::vector<Form>& forms = taken[value.index()];
      const bool is_taken = std::any_of(forms.begin(), forms.end(), [&](const Form& form) {
        return form == to || (home(value) == graph::kPartialForm && form != home(value));
      });
      // Values of another region arrive during the step; sources are there from the start.
      const bool is_received = graph_.value(value).producer.is_none() &&
                               graph_.value(value).role == graph::ValueRole::kActivation;
      if (!is_taken && !is_received) needs[o] = shared_exchange(home(value), to);
      if (is_computed_by_each(value) && to == graph::kWholeForm) needs[o] = Exchange::kAllReduce;
    }
    return needs;
  }

  /// Does every device compute the value itself, rounded differently, where one should?
  bool is_computed_by_each(ValueId value) const {
    const graph::Value& about = graph_.value(value);
    return step_.is_portable() && home(value) == graph::kWholeForm && !about.producer.is_none() &&
           (is_floating(about.dtype) || is_complex(about.dtype));
  }

  void find_wanted() {
    step_.wanted.resize(graph_.values.size());
    const auto want = [&](ValueId value, const Form& form) {
      std::vector<Form>& forms = step_.wanted[value.index()];
      if (form != home(value) && std::find(forms.begin(), forms.end(), form) == forms.end())
        forms.push_back(form);
    };
    for (const OpId id : step_.schedule.order)
      for (const Use& use : uses_[id.index()]) want(use.value, use.form);
    if (step_.part != nullptr)
      for (const auto& [value, form] : step_.part->given)
        if (!step_.is_home(value, form)) want(value, form);
    for (const std::int64_t output : step_.schedule.direct) {
      const auto o = static_cast<std::size_t>(output);
      want(graph_.outputs[o].value, step_.outputs[o]);
    }
  }

  /// Includes exchanges of rewritten operators, as if each had one.
  void find_last_exchange() {
    const auto changes = [&](ValueId value, const Form& form) {
      return graph_.value(value).role == graph::ValueRole::kActivation &&
             !step_.is_home(value, form) && home(value) != graph::kWholeForm;
    };
    const std::vector<std::size_t> places = places_in(step_.schedule.order, graph_.ops.size());
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      const int factor = sharding_.ops[i].factor;
      const bool is_rewritten =
          factor >= 0 && step_.rules[i].factors[static_cast<std::size_t>(factor)].split ==
                             graph::Split::kRewritten;
      if (is_rewritten || std::any_of(uses_[i].begin(), uses_[i].end(),
                                      [&](const Use& use) { return changes(use.value, use.form); }))
        step_.last_exchange = std::max(step_.last_exchange, static_cast<std::int64_t>(places[i]));
    }
    for (const auto& [value, form] : step_.part->given)
      if (changes(value, form))
        step_.last_exchange =
            std::max(step_.last_exchange,
                     static_cast<std::int64_t>(places[graph_.value(value).producer.index()]));
    for (const Bucket& bucket : step_.gathers)
      if (sharding_.gathered_again.contains(bucket.items.front().value))
        step_.last_exchange = std::max(step_.last_exchange, bucket.ready);
  }

  void find_gathers() {
    std::vector<std::int64_t> first_use(graph_.values.size(), -1);
    std::vector<ReadyItem> once, again;
    for (std::size_t i = 0; i < step_.schedule.order.size(); ++i)
      for (const Use& use : uses_[step_.schedule.order[i].index()]) {
        if (graph_.value(use.value).role != graph::ValueRole::kParameter ||
            home(use.value).kind != FormKind::kSharded || first_use[use.value.index()] >= 0 ||
            !(use.form == graph::kWholeForm || goes_over_whole(home(use.value), use.form)))
          continue;
        first_use[use.value.index()] = static_cast<std::int64_t>(i);
        (sharding_.gathered_again.contains(use.value) ? again : once)
            .push_back({static_cast<std::int64_t>(i),
                        Exchange::kAllGather,
                        {BucketItem::kSource, use.value}});
      }
    step_.gathers = fill_buckets(graph_, once, step_.options.bucket_bytes);
    for (Bucket& bucket : fill_buckets(graph_, again, step_.options.bucket_bytes))
      step_.gathers.push_back(std::move(bucket));
    for (Bucket& bucket : step_.gathers)
      bucket.ready = first_use[bucket.items.front().value.index()];
    std::stable_sort(step_.gathers.begin(), step_.gathers.end(),
                     [](const Bucket& a, const Bucket& b) { return a.ready < b.ready; });
  }

  ShardedStep& step_;
  const graph::Graph& graph_;
  const Sharding& sharding_;
  /// By operator: its operands, without those read only for their dtype.
  std::vector<std::vector<Use>> uses_;
  std::map<std::pair<OpId, std::int64_t>, double> flops_;  // by operator of the model and samples
};

}  // namespace

void Held::add(const graph::Op& op, const graph::ShardingRule& rule,
               const graph::Strategy& strategy) {
  const std::vector<graph::IdenticalDims> found = identical_results(rule, identical);
  for (std::size_t r = 0; r < op.outputs.size(); ++r) {
    homes[op.outputs[r].index()] = strategy.results[r];
    identical[op.outputs[r].index()] = found[r];
  }
}

bool ShardedStep::is_home(ValueId value, const Form& form) const {
  return is_same(home(value), form, held.identical[value.index()]);
}

bool is_same(const Form& from, const Form& to, graph::IdenticalDims identical) {
  if (from == to) return true;
  return from.kind == FormKind::kSharded && to.kind == FormKind::kSharded && from.dim == to.dim &&
         from.extent == to.extent && from.dim < 64 && (identical >> from.dim & 1) != 0;
}

bool is_ignored(const graph::ShardingRule& rule, std::size_t operand) {
  return std::find(rule.ignored.begin(), rule.ignored.end(), static_cast<int>(operand)) !=
         rule.ignored.end();
}

bool is_nll(const graph::Op& op) {
  return op.name == "aten::nll_loss_forward" || op.name == "aten::nll_loss2d_forward";
}

bool splits_samples(const Form& x) { return x.kind == FormKind::kSharded && x.dim != 1; }

ShardedStep plan_step(const graph::Graph& graph, const Sharding& sharding,
                      const std::vector<graph::ShardingRule>& rules, const LowerOptions& options,
                      const std::vector<Copy>* copies, const PartOfStep* part) {
  ShardedStep step{graph, sharding, rules, options, copies, part, Held(graph.values.size())};
  StepPlanner(step).plan();
  return step;
}

}  // namespace motley::synth
