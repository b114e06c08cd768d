#include "motley/cost/operators/operator_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "motley/base/statistics.h"
#include "motley/cost/fit/least_squares.h"
#include "motley/cost/measured/whole_step.h"

namespace motley::cost {
namespace {

constexpr std::size_t kLeastEntries = 10;
constexpr double kRidge = 1e-4;

/// Returns "aten::add.Tensor" for the key "aten::add.Tensor(f32[2], f32[2])".
std::string_view operator_of(std::string_view key) { return key.substr(0, key.find('(')); }

bool does_work(const OpEntry& entry) { return entry.work.launches > 0 && entry.median.value > 0; }

}  // namespace

Result<OperatorModel::Line> OperatorModel::fit_line(const std::vector<const OpEntry*>& entries) {
  std::vector<std::vector<double>> rows;
  std::vector<double> seconds;
  for (const OpEntry* entry : entries) {
    rows.push_back(
        {static_cast<double>(entry->work.launches), entry->work.flops, entry->work.bytes});
    seconds.push_back(entry->median.value);
  }
  MOTLEY_ASSIGN(const std::vector<double> fitted,
                fit_relative(rows, seconds, {.is_nonnegative = true, .ridge = kRidge}));
  return with_samples({fitted[0], fitted[1], fitted[2], {}, 0}, entries);
}

OperatorModel::Line OperatorModel::with_samples(Line line,
                                                const std::vector<const OpEntry*>& entries) {
  line.samples.clear();
  line.least = 0;
  for (const OpEntry* entry : entries) {
    line.samples.push_back({entry->work, std::log(entry->median.value / line.at(entry->work))});
    line.least = std::min(line.least, line.samples.back().residual);
  }
  return line;
}

Result<OperatorModel> OperatorModel::fit(const std::vector<OpEntry>& entries) {
  std::map<std::string, std::vector<const OpEntry*>, std::less<>> by_operator;
  std::vector<const OpEntry*> all;
  std::vector<double> views;
  for (const OpEntry& entry : entries) {
    if (does_work(entry)) {
      all.push_back(&entry);
      by_operator[std::string(operator_of(entry.key))].push_back(&entry);
    } else if (entry.median.value > 0 && !is_whole_step(entry)) {
      views.push_back(entry.median.value);
    }
  }
  if (all.size() < kLeastEntries)
    return usage_error("cost.few-measurements",
                       fmt::format("{} measured operators, wanted {} or more to say what others "
                                   "take; run `motley profile` with some model first",
                                   all.size(), kLeastEntries));
  OperatorModel model;
  model.scratch_ = ScratchModel(entries);
  MOTLEY_ASSIGN(model.all_, fit_line(all));
  for (const auto& [name, measured] : by_operator) {
    if (model.tells_rates(measured)) {
      MOTLEY_ASSIGN(model.lines_[name], fit_line(measured));
    } else {
      model.lines_[name] = with_samples(model.all_, measured);
    }
  }
  if (!views.empty()) {
    model.least_view_ = *std::min_element(views.begin(), views.end());
    model.view_ = upper_median(std::move(views));
  }
  return model;
}

bool OperatorModel::tells_rates(const std::vector<const OpEntry*>& entries) const {
  return std::any_of(entries.begin(), entries.end(), [&](const OpEntry* entry) {
    const double launches = all_.launch * static_cast<double>(entry->work.launches);
    return all_.at(entry->work) > 2 * launches;
  });
}

const OperatorModel::Line& OperatorModel::line_of(std::string_view name) const {
  const auto found = lines_.find(name);
  return found == lines_.end() ? all_ : found->second;
}

Seconds OperatorModel::seconds(std::string_view name, const OperatorWork& work) const {
  if (work.launches == 0) return Seconds(view_);
  const Line& line = line_of(name);
  double sum = 0, weight = kLineWeight;
  if (&line != &all_) {
    for (const Sample& sample : line.samples) {
      const double near = nearness(work, sample.work);
      sum += near * sample.residual;
      weight += near;
    }
  }
  return Seconds(line.at(work) * std::exp(sum / weight));
}

Seconds OperatorModel::least_seconds(std::string_view name, const OperatorWork& work) const {
  if (work.launches == 0) return Seconds(least_view_);
  const Line& line = line_of(name);
  return Seconds(line.at(work) * (&line == &all_ ? 1.0 : std::exp(line.least)));
}

TimeSource::Answer ModelledTimes::answer(std::string_view name, DType /*dtype*/,
                                         const OperatorWork& work) const {
  if (estimate_ == Estimate::kLeast) return {model_.least_seconds(name, work), Bytes(0)};
  return {model_.seconds(name, work), Bytes(0)};
}

Bytes ModelledTimes::scratch(std::string_view name, DTypes reads, const OperatorWork& work) const {
  return estimate_ == Estimate::kLeast ? Bytes(0) : model_.scratch().scratch(name, reads, work);
}

}  // namespace motley::cost
