#include "motley/search/spmd/explain_sharding.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "motley/base/text.h"
#include "motley/graph/layers.h"
#include "motley/graph/work.h"
#include "motley/plan/shares.h"
#include "motley/program/parts.h"
#include "motley/search/spmd/form_changes.h"

namespace motley::search {
namespace {

using graph::Form;
using graph::FormKind;
using graph::Strategy;

constexpr const char* kWhole = "whole";
constexpr std::size_t kMostParts = 8;  // parts that are named individually
constexpr std::size_t kMostNamed = 4;  // kinds of split or exchange named per layer

bool is_by_samples(const Strategy& way, std::int64_t batch) {
  const auto by_samples = [&](const Form& form) {
    return form.kind == FormKind::kSharded && form.extent == batch && form.outer == 1;
  };
  return way.factor >= 0 && (std::any_of(way.operands.begin(), way.operands.end(), by_samples) ||
                             std::any_of(way.results.begin(), way.results.end(), by_samples));
}

class Explainer {
 public:
  Explainer(SpmdStudy& study, const SpmdPlan& plan)
      : graph_(study.graph()),
        sharding_(plan.sharding),
        choices_(study.choices(plan.sharding.shares)),
        space_(choices_.space),
        prices_(study.prices(space_, plan.devices, plan.sharding.shares)),
        layers_(graph::find_layers(graph_)),
        names_(find_names(study.question())) {
    for (std::size_t l = 0; l < layers_.size(); ++l)
      for (const OpId op : layers_[l].ops) layer_of_[op] = l;
    SpmdObjective objective;
    objective.states = plan::count_states(study.question().lowering.recipe);
    costs_ = choices_.problem.costs(prices_, objective);
  }

  std::vector<std::string> lines() {
    find_exchanges();
    base_ = least_cost(nullptr, false);
    std::vector<std::string> all = {shares_line()};
    std::vector<std::pair<std::string, std::vector<std::string>>> groups;  // text, paths
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      std::string text = layer_text(l);
      if (text.empty()) continue;
      const auto same = std::find_if(groups.begin(), groups.end(),
                                     [&](const auto& group) { return group.first == text; });
      if (same != groups.end()) {
        same->second.insert(same->second.end(), names_[l].begin(), names_[l].end());
        continue;
      }
      groups.push_back({std::move(text), names_[l]});
      first_of_group_.push_back(l);
    }
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const auto& [text, names] = groups[g];
      const std::string who = names.size() == 1
                                  ? names[0]
                                  : fmt::format("{} and {} other{} alike", names[0],
                                                names.size() - 1, names.size() == 2 ? "" : "s");
      all.push_back(fmt::format("{}: {}{}", who, text, alternatives(first_of_group_[g])));
    }
    return all;
  }

 private:
  /// Returns, by layer, the names of the layers that it represents.
  std::vector<std::vector<std::string>> find_names(const SpmdQuestion& question) const {
    std::vector<std::size_t> of_op(graph_.ops.size(), 0);
    for (std::size_t l = 0; l < layers_.size(); ++l)
      for (const OpId op : layers_[l].ops) of_op[op.index()] = l;
    std::vector<std::vector<std::string>> names(layers_.size());
    for (const graph::Layer& layer : graph::find_layers(*question.graph)) {
      const OpId op = layer.ops.front();
      const OpId here = question.depths ? question.depths->searched.of_op[op.index()] : op;
      names[of_op[here.index()]].push_back(layer.path.empty() ? "(no layer)" : layer.path);
    }
    return names;
  }

  /// Returns a count of a represented layer, from the sum over all of them.
  double of_each(double count, std::size_t layer) const {
    return count / static_cast<double>(names_[layer].size());
  }

  std::string parts_text(std::int64_t extent) const {
    return plan::parts_text(plan::round_shares(sharding_.shares, extent));
  }

  std::string shares_line() const {
    const std::string who = sharding_.devices.size() <= kMostParts
                                ? join(sharding_.devices, ", ")
                                : fmt::format("each of {} devices", sharding_.devices.size());
    const std::string often =
        sharding_.micro_batches == 1
            ? ""
            : fmt::format(", in each of {} micro-batches{}, for one of which is what follows",
                          sharding_.micro_batches,
                          sharding_.turns == 1
                              ? ""
                              : fmt::format(", {} of which take turns", sharding_.turns));
    return fmt::format("samples {} on {}{}", parts_text(space_.global_batch), who, often);
  }

  /// Returns "samples", "columns 16:12:4 of 32", "sums over 5:4:3 of 12".
  std::string way_text(std::size_t op) const {
    const Strategy& way = sharding_.ops[op];
    if (way.factor < 0) {
      const bool passes = std::any_of(way.results.begin(), way.results.end(),
                                      [](const Form& f) { return f.kind == FormKind::kPartial; });
      return passes ? "terms" : kWhole;
    }
    if (is_by_samples(way, space_.global_batch)) return "samples";
    const Form* form = nullptr;
    for (const Form& each : way.results)
      if (each.kind == FormKind::kSharded) form = &each;
    const bool is_sum = form == nullptr;
    for (const Form& each : way.operands)
      if (form == nullptr && each.kind == FormKind::kSharded) form = &each;
    if (form == nullptr) return "parts";
    return fmt::format("{} {} of {}", is_sum ? "sums over" : "parts", parts_text(form->extent),
                       form->extent);
  }

  /// Describes how the layer's most expensive operators are split.
  std::string splits_text(std::size_t layer) {
    std::map<std::string, double> seconds;  // by text
    double all = 0;
    for (const OpId op : layers_[layer].ops) {
      if (!space_.is_needed[op.index()] || graph::is_view(graph_.op(op).name)) continue;
      const double time =
          space_.op_count[op.index()] * prices_.compute(op, space_.ways[op.index()][0])[0];
      seconds[way_text(op.index())] += time;
      all += time;
    }
    if (seconds.empty()) return "";
    std::vector<std::pair<double, std::string>> sorted;
    for (const auto& [text, time] : seconds) sorted.emplace_back(-time, text);
    std::sort(sorted.begin(), sorted.end());
    std::vector<std::string> parts;
    for (const auto& [time, text] : sorted) {
      const double share = all > 0 ? -time / all : 1;
      if (parts.size() == kMostNamed || (share < 0.02 && !parts.empty())) break;
      parts.push_back(fmt::format("{} ({:.0f} % of its work)", text, 100 * share));
    }
    if (sorted.size() == 1 && sorted[0].second == kWhole) return "run whole on each device";
    return "split by " + join(parts, ", ");
  }

  std::string kept_text(std::size_t layer) const {
    std::map<std::string, double> bytes;
    for (const ValueId id : layers_[layer].parameters) {
      const Form& form = sharding_.sources[id.index()];
      bytes[form.kind == FormKind::kSharded ? "in parts" : "whole"] +=
          of_each(space_.value_count[id.index()], layer) *
          static_cast<double>(graph::value_bytes(graph_.value(id), {{"batch", 1}}));
    }
    std::vector<std::string> texts;
    for (const auto& [how, size] : bytes)
      texts.push_back(fmt::format("{} {}", format_bytes(Bytes(std::llround(size))), how));
    return texts.empty() ? "" : "; parameters kept: " + join(texts, ", ");
  }

  /// An exchange by conversions of one layer's values.
  struct Exchange {
    double times = 0;
    double bytes = 0, seconds = 0;
  };

  void find_exchanges() {
    for (const FormChange& change : find_changes(graph_, space_, sharding_)) {
      const ConversionTime& time = prices_.conversion(change.value, change.from, change.to);
      const double seconds = time.exchange;
      const OpId producer = graph_.value(change.value).producer;
      const OpId where = producer.is_none() ? change.reader.op : producer;
      if (seconds == 0 || where.is_none()) continue;
      const std::size_t layer = layer_of_.at(where);
      const double count = of_each(space_.value_count[change.value.index()], layer);
      Exchange& exchange = exchanges_[layer][name_of(change, time)];
      exchange.times += count;
      exchange.bytes += count * prices_.bytes(change.value, graph::kWholeForm, 0);
      exchange.seconds += count * seconds;
    }
  }

  /// Returns "grouped all-gather", "all-reduce of gradients".
  static std::string name_of(const FormChange& change, const ConversionTime& time) {
    std::string name(time.op.substr(time.op.find("::") + 2));
    std::replace(name.begin(), name.end(), '_', '-');
    if (time.method != ExchangeMethod::kNative)
      name = fmt::format("{} {}", exchange_method_name(time.method), name);
    return change.reader.op.is_none() ? name + " of gradients" : name;
  }

  std::string exchanges_text(std::size_t layer) const {
    const auto found = exchanges_.find(layer);
    if (found == exchanges_.end()) return "; exchanges nothing";
    std::vector<std::string> texts;
    for (const auto& [name, exchange] : found->second)
      texts.push_back(fmt::format("{} {} ({}, {})", std::llround(exchange.times), name,
                                  format_bytes(Bytes(std::llround(exchange.bytes))),
                                  format_seconds(Seconds(exchange.seconds))));
    return "; exchanges " + join(texts, ", ");
  }

  std::string layer_text(std::size_t layer) {
    const std::string splits = splits_text(layer);
    if (splits.empty() && !exchanges_.contains(layer)) return "";
    return (splits.empty() ? "moves data only" : splits) + kept_text(layer) + exchanges_text(layer);
  }

  /// Returns the search's least cost if a layer may only be split by samples, or only be whole.
  double least_cost(const graph::Layer* layer, bool by_samples) {
    TableCosts costs = costs_;
    if (layer != nullptr)
      for (const OpId op : layer->ops)
        choices_.problem.restrict(costs, op, [&](const Strategy& way) {
          return way.factor < 0 || (by_samples && is_by_samples(way, space_.global_batch));
        });
    return choices_.problem.solve(costs).cost;
  }

  std::string alternatives(std::size_t layer) {
    std::vector<std::string> texts;
    const auto& ops = layers_[layer].ops;
    const auto all_ops = [&](const auto& is_so) {
      return std::all_of(ops.begin(), ops.end(), [&](OpId op) {
        return !space_.is_needed[op.index()] || is_so(sharding_.ops[op.index()]);
      });
    };
    const bool is_whole = all_ops([](const Strategy& way) { return way.factor < 0; });
    const bool is_samples = all_ops([&](const Strategy& way) {
      return way.factor < 0 || is_by_samples(way, space_.global_batch);
    });
    if (!is_samples) texts.push_back(difference("by samples", layer, true));
    if (!is_whole) texts.push_back(difference("whole", layer, false));
    return texts.empty() ? "" : "; instead " + join(texts, ", ");
  }

  std::string difference(const char* how, std::size_t layer, bool by_samples) {
    const double more = of_each(least_cost(&layers_[layer], by_samples) - base_, layer);
    return fmt::format("{} {}{}", how, more < 0 ? "-" : "+",
                       format_seconds(Seconds(std::abs(more))));
  }

  const graph::Graph& graph_;
  const synth::Sharding& sharding_;
  const SpmdChoices& choices_;
  const SpmdSpace& space_;
  SpmdPrices prices_;
  TableCosts costs_;  // of the search
  const std::vector<graph::Layer> layers_;
  const std::vector<std::vector<std::string>> names_;
  std::map<OpId, std::size_t> layer_of_;
  std::map<std::size_t, std::map<std::string, Exchange>> exchanges_;  // by layer, kind
  std::vector<std::size_t> first_of_group_;
  double base_ = 0;
};

}  // namespace

std::vector<std::string> explain_sharding(SpmdStudy& study, const SpmdPlan& plan) {
  return Explainer(study, plan).lines();
}

}  // namespace motley::search
