#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "motley/base/json.h"
#include "motley/base/text.h"
#include "motley/report/report.h"

namespace motley::report {
namespace {

constexpr std::size_t kMost = 10;

/// Sums seconds over all devices per operator name, the text before the first space.
std::map<std::string, double> time_by_operator(const trace::Trace& trace) {
  std::map<std::string, double> times;
  for (const trace::Interval& interval : trace.intervals) {
    const auto& names = trace.names[static_cast<std::size_t>(interval.device)];
    const std::string& name = names[interval.instruction.index()];
    // Labels follow the name: the products of all layers are one line.
    times[name.substr(0, name.find(' '))] +=
        static_cast<double>(interval.end - interval.begin) / 1e9;
  }
  return times;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

/// A part of a step, with its key in the JSON.
struct Part {
  const char* key;
  trace::Nanoseconds trace::Breakdown::*time;
};
constexpr Part kParts[] = {{"compute_share", &trace::Breakdown::compute},
                           {"exchange_share", &trace::Breakdown::exposed_communication},
                           {"waiting_share", &trace::Breakdown::waiting},
                           {"idle_share", &trace::Breakdown::bubble}};

double share_of(const trace::Breakdown& parts, const Part& part) {
  return parts.total() > 0
             ? static_cast<double>(parts.*part.time) / static_cast<double>(parts.total())
             : 0.0;
}

std::string parts_table(const trace::Trace& predicted, const trace::Trace& measured) {
  const auto before = trace::break_down(predicted), after = trace::break_down(measured);
  std::string text = fmt::format("\n  {:<10} {:>15} {:>15} {:>15} {:>15}\n", "of a step", "compute",
                                 "exchange", "waiting", "idle");
  std::vector<std::pair<std::string, std::string>> rows;
  for (std::size_t d = 0; d < std::min(before.size(), after.size()); ++d) {
    std::string cells;
    for (const Part& part : kParts)
      cells += fmt::format(" {:>6.1f}% {:>6.1f}%", 100 * share_of(before[d], part),
                           100 * share_of(after[d], part));
    rows.emplace_back(measured.devices[d], cells.substr(1));
  }
  return text + print_rows(rows);
}

std::string operators_table(const trace::Trace& predicted, const trace::Trace& measured) {
  const std::vector<OperatorShare> shares = compare_operators(predicted, measured);
  std::string text =
      fmt::format("\n  {:<36} {:>10} {:>10} {:>10}\n", "operators, of what they all take",
                  "predicted", "measured", "points");
  for (std::size_t i = 0; i < std::min(kMost, shares.size()); ++i)
    text += fmt::format("  {:<36} {:>9.1f}% {:>9.1f}% {:>+10.1f}\n", shares[i].name,
                        100 * shares[i].predicted, 100 * shares[i].measured,
                        100 * shares[i].deviation());
  return text;
}

}  // namespace

std::vector<OperatorShare> compare_operators(const trace::Trace& predicted,
                                             const trace::Trace& measured) {
  std::map<std::string, OperatorShare> by_name;
  const auto add = [&](const trace::Trace& trace, double OperatorShare::*share) {
    const std::map<std::string, double> times = time_by_operator(trace);
    double all = 0;
    for (const auto& [name, seconds] : times) all += seconds;
    for (const auto& [name, seconds] : times) {
      by_name[name].name = name;
      if (all > 0) by_name[name].*share = seconds / all;
    }
  };
  add(predicted, &OperatorShare::predicted);
  add(measured, &OperatorShare::measured);
  std::vector<OperatorShare> shares;
  for (auto& [name, share] : by_name) shares.push_back(std::move(share));
  // Stable over sorted names: ties print identically everywhere.
  std::stable_sort(shares.begin(), shares.end(),
                   [](const OperatorShare& a, const OperatorShare& b) {
                     return std::abs(a.deviation()) > std::abs(b.deviation());
                   });
  return shares;
}

Json shares_to_json(const trace::Trace& predicted, const trace::Trace& measured) {
  const auto before = trace::break_down(predicted), after = trace::break_down(measured);
  Json json{{"time_shares", Json::array()}, {"operator_shares", Json::array()}};
  for (std::size_t d = 0; d < std::min(before.size(), after.size()); ++d) {
    Json row{{"name", measured.devices[d]}};
    for (const Part& part : kParts) {
      row["predicted"][part.key] = share_of(before[d], part);
      row["measured"][part.key] = share_of(after[d], part);
    }
    json["time_shares"].push_back(std::move(row));
  }
  for (const OperatorShare& each : compare_operators(predicted, measured))
    json["operator_shares"].push_back(
        {{"name", each.name}, {"predicted", each.predicted}, {"measured", each.measured}});
  return json;
}

std::string print_comparison(const RunFigures& predicted, const RunFigures& measured) {
  std::string text =
      fmt::format("  {:<24} {:>12} {:>12} {:>8}\n", "", "predicted", "measured", "error");
  auto row = [&](const std::string& name, const std::string& p, const std::string& m,
                 double error) {
    text += fmt::format("  {:<24} {:>12} {:>12} {:>7.1f}%\n", name, p, m, 100 * error);
  };
  auto relative = [](double p, double m) { return m > 0 ? (p - m) / m : 0.0; };
  row("step time", format_seconds(predicted.step), format_seconds(measured.step),
      relative(predicted.step.value, measured.step.value));
  const Seconds exposed_before = trace::exposed_communication(predicted.trace);
  const Seconds exposed_after = trace::exposed_communication(measured.trace);
  text += fmt::format("  {:<24} {:>12} {:>12}\n", "exposed communication",
                      format_seconds(exposed_before), format_seconds(exposed_after));
  const auto busy_before = trace::busy_share(predicted.trace);
  const auto busy_after = trace::busy_share(measured.trace);
  text += fmt::format("  {:<24} {:>11.0f}% {:>11.0f}%\n", "busy, mean of devices",
                      100 * mean(busy_before), 100 * mean(busy_after));
  for (std::size_t i = 0; i < measured.peaks.size() && i < predicted.peaks.size(); ++i) {
    const Bytes before = predicted.peaks[i], after = measured.peaks[i];
    row("peak memory " + measured.trace.devices[i], format_bytes(before), format_bytes(after),
        relative(static_cast<double>(before.value), static_cast<double>(after.value)));
  }
  return text + parts_table(predicted.trace, measured.trace) +
         operators_table(predicted.trace, measured.trace);
}

}  // namespace motley::report
