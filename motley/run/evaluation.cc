#include "motley/run/evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "motley/base/text.h"

namespace motley::run {
namespace {

std::optional<std::size_t> position_of(const std::vector<std::string>& names,
                                       const std::string& name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<std::size_t>(found - names.begin());
}

bool is_better_low(std::string_view metric) {
  return metric.ends_with("loss") || metric.ends_with("perplexity") || metric.ends_with("error");
}

}  // namespace

Result<Watch> parse_watch(const std::string& text) {
  const std::size_t at = text.find(':');
  Watch watch{.metric = text.substr(0, at)};
  const std::string word = at == std::string::npos ? "" : text.substr(at + 1);
  if (watch.metric.empty() || (at != std::string::npos && word != "min" && word != "max"))
    return usage_error("run.watch",
                       fmt::format("--best: found '{}', wanted a metric such as accuracy, "
                                   "accuracy:max or loss:min",
                                   text));
  watch.higher_is_better = word.empty() ? !is_better_low(watch.metric) : word == "max";
  return watch;
}

Result<void> EvaluationJob::check(const std::string& where) const {
  if (every >= 0 && patience >= 0 && !programs.empty() && programs.size() <= 2) return {};
  return usage_error("run.job", where +
                                    ": wanted every and patience from 0 on, and one or two "
                                    "programs");
}

std::optional<double> Evaluation::find(const std::string& name) const {
  if (name == "loss") return loss;
  const auto found = std::find_if(metrics.begin(), metrics.end(),
                                  [&](const auto& metric) { return metric.first == name; });
  if (found == metrics.end()) return std::nullopt;
  return found->second;
}

EvaluationSums::EvaluationSums(const std::vector<std::string>& outputs)
    : weighed_(outputs.size(), 1), sums_(outputs.size(), 0.0) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::string& output = outputs[i];
    const std::string name = output.substr(0, output.rfind('.'));
    const bool is_sum = output.ends_with(".0") && position_of(outputs, name + ".1");
    const bool is_count = output.ends_with(".1") && position_of(outputs, name + ".0");
    weighed_[i] = is_sum || is_count ? 0 : 1;
    if (is_sum)
      metrics_.push_back({name, i, position_of(outputs, name + ".1")});
    else if (!is_count)
      metrics_.push_back({output, i, std::nullopt});
  }
}

void EvaluationSums::add(double loss, const std::vector<double>& outputs, std::int64_t samples) {
  const auto weight = static_cast<double>(samples);
  loss_ += loss * weight;
  samples_ += weight;
  for (std::size_t i = 0; i < sums_.size(); ++i)
    sums_[i] += outputs[i] * (weighed_[i] != 0 ? weight : 1.0);
}

std::vector<std::string> EvaluationSums::names() const {
  std::vector<std::string> names;
  for (const Metric& metric : metrics_) names.push_back(metric.name);
  return names;
}

Result<Evaluation> EvaluationSums::result() const {
  Evaluation made{.loss = loss_ / samples_};
  for (const Metric& metric : metrics_) {
    const double count = metric.count ? sums_[*metric.count] : samples_;
    if (count == 0)
      return runtime_error("run.metric",
                           fmt::format("metric '{}': its count is 0 over all of the evaluation's "
                                       "samples; return (sum, count) with what was counted",
                                       metric.name));
    const double mean = sums_[metric.sum] / count;
    made.metrics.emplace_back(metric.name,
                              metric.name.ends_with("perplexity") ? std::exp(mean) : mean);
  }
  const auto check = [](const std::string& name, double value) -> Result<void> {
    if (std::isfinite(value)) return {};
    return runtime_error("run.metric", fmt::format("{} is {} over the evaluation's samples", name,
                                                   std::isnan(value) ? "nan" : "infinite"));
  };
  MOTLEY_RETURN_IF_ERROR(check("the loss", made.loss));
  for (const auto& [name, value] : made.metrics)
    MOTLEY_RETURN_IF_ERROR(check("metric '" + name + "'", value));
  return made;
}

bool update_best(const Watch& watch, double value, std::int64_t step, std::optional<Best>& best) {
  const bool is_best =
      !best || (watch.higher_is_better ? value > best->value : value < best->value);
  if (is_best)
    best = Best{value, step, 0};
  else
    ++best->worse_since;
  return is_best;
}

}  // namespace motley::run
