#include "motley/cli/print/print_what_if.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "motley/base/json.h"
#include "motley/base/text.h"
#include "motley/cli/print/print_prediction.h"
#include "motley/control/planning/binding.h"
#include "motley/report/report.h"

namespace motley::cli {
namespace {

using control::Consequence;

Json or_null(std::optional<double> value) { return value ? Json(*value) : Json(nullptr); }

struct Now {
  std::optional<double> per_hour;
  Seconds step;
  double samples_per_s = 0;
};

Now now_of(const Explained& explained) {
  const Seconds step = explained.predicted.seconds();
  return {cluster::price_per_hour(explained.inputs.cluster, explained.inputs.devices), step,
          step.value > 0 ? static_cast<double>(explained.plan.global_batch) / step.value : 0};
}

std::optional<Seconds> step_of(const Consequence& consequence) {
  if (!consequence.samples_per_s()) return std::nullopt;
  return consequence.outcome.predicted_step;
}

std::optional<double> epoch_of(const Consequence& consequence, std::int64_t samples) {
  const auto step = step_of(consequence);
  if (!step) return std::nullopt;
  return cost_per_epoch(consequence.per_hour, *step, consequence.global_batch, samples);
}

Json plan_to_json(const Consequence& consequence) {
  if (!consequence.is_feasible()) return nullptr;
  const plan::PlanOutcome& outcome = consequence.outcome;
  Json split = Json::object(), idle = Json::array();
  for (const auto& [device, samples] : plan::members(*outcome.plan))
    split[consequence.names[device.index()]] = samples;
  for (const DeviceId device : outcome.idle) idle.push_back(consequence.names[device.index()]);
  return {{"planner", outcome.planner},
          {"outcome", plan::reason_name(outcome.reason)},
          {"label", report::plan_label(*outcome.plan)},
          {"batch_split", std::move(split)},
          {"idle", std::move(idle)}};
}

Json consequence_to_json(const Consequence& consequence, const Now& now, std::int64_t samples) {
  const auto step = step_of(consequence);
  const auto speed = consequence.samples_per_s();
  return {{"what", consequence.what},
          {"feasible", consequence.is_feasible()   ? Json(true)
                       : consequence.is_infeasible ? Json(false)
                                                   : Json(nullptr)},
          {"why_not", consequence.is_feasible() ? Json(nullptr) : Json(consequence.why_not)},
          {"step_s", step ? Json(step->value) : Json(nullptr)},
          {"change", step ? Json(*step / now.step - 1) : Json(nullptr)},
          {"global_batch", consequence.global_batch},
          {"samples_per_s", or_null(speed)},
          {"gain", speed ? Json(*speed / now.samples_per_s - 1) : Json(nullptr)},
          {"price_per_hour", or_null(consequence.per_hour)},
          {"cost_per_sample", or_null(consequence.cost_per_sample())},
          {"cost_per_epoch", or_null(epoch_of(consequence, samples))},
          {"plan", plan_to_json(consequence)},
          {"modelled", consequence.modelled},
          {"elapsed_s", consequence.elapsed_s}};
}

Json binding_to_json(const control::Binding& binding) {
  return {{"what", binding.what},
          {"devices", binding.devices},
          {"link", binding.link.empty() ? Json(nullptr) : Json(binding.link)},
          {"share", binding.share},
          {"text", binding.text}};
}

std::vector<std::string> idle_names(const Explained& explained) {
  std::vector<std::string> names;
  const std::vector<plan::Member> members = plan::members(explained.plan);
  for (const DeviceId id : explained.inputs.devices)
    if (std::none_of(members.begin(), members.end(),
                     [&](const plan::Member& member) { return member.device == id; }))
      names.push_back(explained.inputs.cluster.device(id).name);
  return names;
}

std::vector<Consequence> asked_of(const Explained& explained) {
  return {explained.consequences.begin() + 1, explained.consequences.end()};
}

bool has_costs(const std::vector<Consequence>& asked) {
  return std::any_of(asked.begin(), asked.end(),
                     [](const Consequence& each) { return each.cost_per_sample().has_value(); });
}

std::string money(std::optional<double> value) {
  if (!value) return "-";
  return *value == 0 || *value >= 0.1 ? fmt::format("{:.2f}", *value)
                                      : fmt::format("{:.2g}", *value);
}

/// Returns the cost of an epoch, or of a million samples if an epoch's size is unknown.
std::optional<double> shown_cost(const Consequence& consequence, std::int64_t samples) {
  if (samples > 0) return epoch_of(consequence, samples);
  const auto each = consequence.cost_per_sample();
  return each ? std::optional(*each * 1e6) : std::nullopt;
}

std::string row(const Consequence& consequence, const Now& now, std::int64_t samples,
                std::size_t width) {
  std::string text = fmt::format("  {:<{}}", consequence.what, width);
  const auto step = step_of(consequence);
  if (!consequence.is_feasible()) return text + "  " + consequence.why_not + "\n";
  if (!step) return text + "  not known: " + report::plan_label(*consequence.outcome.plan) + "\n";
  const double gain = *consequence.samples_per_s() / now.samples_per_s - 1;
  text += fmt::format(" {:>10} {:>+8.1f}% {:>11.4g}", format_seconds(*step), 100 * gain,
                      *consequence.samples_per_s());
  if (consequence.per_hour)
    text += fmt::format(" {:>9} {:>9}", money(consequence.per_hour),
                        money(shown_cost(consequence, samples)));
  return text + "  " + report::plan_label(*consequence.outcome.plan) + "\n";
}

std::string heading(bool has_prices, std::int64_t samples, std::size_t width) {
  std::string text =
      fmt::format("  {:<{}} {:>10} {:>9} {:>11}", "what if", width, "step", "gain", "samples/s");
  if (has_prices)
    text += fmt::format(" {:>9} {:>9}", "an hour", samples > 0 ? "an epoch" : "a million");
  return text + "  plan\n";
}

/// kManySame or more questions that change speed by less than kNoGain share one line.
constexpr double kNoGain = 0.0005;
constexpr std::size_t kManySame = 4;

bool is_same(const Consequence& consequence, const Now& now) {
  const auto speed = consequence.samples_per_s();
  return speed && std::abs(*speed / now.samples_per_s - 1) < kNoGain;
}

/// Prints "  HEADING: -a:0; -b:0: REASON", a line per nonempty reason.
template <typename Reason>
std::string lines_by_reason(const std::string& heading, const std::vector<Consequence>& asked,
                            const Reason& reason_of) {
  std::vector<std::pair<std::string, std::vector<std::string>>> by_reason;
  for (const Consequence& each : asked) {
    const std::string reason = reason_of(each);
    if (reason.empty()) continue;
    const auto found = std::find_if(by_reason.begin(), by_reason.end(),
                                    [&](const auto& known) { return known.first == reason; });
    auto& names = found != by_reason.end()
                      ? found->second
                      : by_reason.emplace_back(reason, std::vector<std::string>()).second;
    names.push_back(each.what);
  }
  std::string text;
  for (const auto& [reason, names] : by_reason)
    text += "  " + heading + ": " + join(names, "; ") + ": " + reason + "\n";
  return text;
}

std::string unknown_lines(const std::vector<Consequence>& asked) {
  return lines_by_reason("not known", asked, [](const Consequence& each) {
    return each.is_feasible() || each.is_infeasible ? "" : each.why_not;
  });
}

/// Prints which answers rest on modelled times.
std::string modelled_lines(const std::vector<Consequence>& answers) {
  const std::string text =
      lines_by_reason("modelled, not measured", answers,
                      [](const Consequence& each) { return join(each.modelled, "; "); });
  return text.empty() ? "" : "\n" + text;
}

std::string rows(const std::vector<Consequence>& asked, const Now& now, std::int64_t samples,
                 std::size_t width) {
  const auto same = static_cast<std::size_t>(std::count_if(
      asked.begin(), asked.end(), [&](const Consequence& each) { return is_same(each, now); }));
  std::string text;
  std::vector<std::string> names;
  for (const std::size_t i : control::order_by_speed(asked)) {
    if (!asked[i].is_feasible() && !asked[i].is_infeasible) continue;
    if (same < kManySame || !is_same(asked[i], now)) {
      text += row(asked[i], now, samples, width);
    } else if (names.push_back(asked[i].what); names.size() == same) {
      text += "  no change: " + join(names, "; ") + "\n";
    }
  }
  return text + unknown_lines(asked);
}

std::string questions_text(const Explained& explained, const Now& now) {
  const std::vector<Consequence> asked = asked_of(explained);
  std::size_t width = explained.consequences.front().what.size();
  for (const Consequence& each : asked) width = std::max(width, each.what.size());
  std::string text = "\n" + heading(now.per_hour.has_value(), explained.samples, width);
  text += row(explained.consequences.front(), now, explained.samples, width);
  text += rows(asked, now, explained.samples, width);
  text += modelled_lines(explained.consequences);
  if (!has_costs(asked)) return text;
  text += fmt::format("\n  the cheapest {} first:", explained.samples > 0 ? "epoch" : "sample");
  std::string separator = " ";
  for (const std::size_t i : control::order_by_cost(asked)) {
    if (!asked[i].cost_per_sample()) break;
    text += fmt::format("{}{} ({})", separator, asked[i].what,
                        money(shown_cost(asked[i], explained.samples)));
    separator = "; ";
  }
  return text + "\n";
}

/// Returns the planner's own explanation if it would choose this plan again.
std::string why_text(const Explained& explained) {
  const Consequence& again = explained.consequences.front();
  if (!again.is_feasible() || *again.outcome.plan != explained.plan) return "";
  std::string text = "\n";
  for (const std::string& line : again.outcome.why) text += "  " + line + "\n";
  return text;
}

}  // namespace

std::optional<double> cost_per_epoch(std::optional<double> per_hour, Seconds step,
                                     std::int64_t global_batch, std::int64_t samples) {
  if (!per_hour || samples <= 0 || step.value <= 0) return std::nullopt;
  const double steps = static_cast<double>(samples) / static_cast<double>(global_batch);
  return *per_hour / 3600 * step.value * steps;
}

std::string cost_text(std::optional<double> per_hour, Seconds step, std::int64_t global_batch,
                      std::int64_t samples) {
  if (!per_hour) return "";
  std::string text = money(per_hour) + " an hour";
  if (const auto epoch = cost_per_epoch(per_hour, step, global_batch, samples))
    text += fmt::format(", {} an epoch of {} samples", money(epoch), samples);
  return text;
}

Json explained_to_json(const Explained& explained) {
  const Now now = now_of(explained);
  const std::vector<Consequence> asked = asked_of(explained);
  const Consequence& again = explained.consequences.front();
  const bool is_same = again.is_feasible() && *again.outcome.plan == explained.plan;
  Json object = {
      {"step_s", now.step.value},
      {"global_batch", explained.plan.global_batch},
      {"samples_per_s", now.samples_per_s},
      {"price_per_hour", or_null(now.per_hour)},
      {"cost_per_epoch", or_null(cost_per_epoch(now.per_hour, now.step, explained.plan.global_batch,
                                                explained.samples))},
      {"binding", Json::array()},
      {"idle", idle_names(explained)},
      {"why", is_same ? Json(again.outcome.why) : Json(nullptr)},
      {"planned_again", consequence_to_json(again, now, explained.samples)},
      {"what_if", Json::array()},
      {"by_cost", Json::array()}};
  add_mirrors(explained.predicted, object);
  for (const control::Binding& binding :
       control::find_binding(explained.inputs, explained.plan, explained.predicted))
    object["binding"].push_back(binding_to_json(binding));
  for (const std::size_t i : control::order_by_speed(asked))
    object["what_if"].push_back(consequence_to_json(asked[i], now, explained.samples));
  for (const std::size_t i : control::order_by_cost(asked))
    if (asked[i].cost_per_sample()) object["by_cost"].push_back(asked[i].what);
  return object;
}

std::string print_explained(const Explained& explained) {
  const Now now = now_of(explained);
  std::string text = fmt::format("{} samples a step of {}: {}\n", explained.plan.global_batch,
                                 format_seconds(now.step), report::plan_label(explained.plan));
  if (now.per_hour)
    text +=
        cost_text(now.per_hour, now.step, explained.plan.global_batch, explained.samples) + "\n";
  text += "\n  what binds\n";
  for (const control::Binding& binding :
       control::find_binding(explained.inputs, explained.plan, explained.predicted))
    text += "  " + binding.text + "\n";
  if (const auto& mirrors = explained.predicted.mirrors)
    text += "  " + control::print_mirror_price(*mirrors) + "\n";
  if (const auto idle = idle_names(explained); !idle.empty())
    text += "  idle: " + control::name_some(idle) + "\n";
  return text + why_text(explained) + questions_text(explained, now);
}

}  // namespace motley::cli
