// Measures errors of predictions, a row per data set and question, over the sets in DATA and the
// output of `make bench-own_runs`. Usage: bench_accuracy DATA OWN.json OUT.json
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "bench/accuracy/row.h"
#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/base/statistics.h"

namespace motley::bench {
namespace {

struct Set {
  const char* name;
  Rows (*rows)(const std::string& data);
};
const std::vector<Set> kSets = {
    {"device kinds", kind_rows},      {"carried profiles", carried_rows},
    {"collectives", collective_rows}, {"Sailor", sailor_rows},
    {"vTrain", vtrain_rows},          {"HeteroG", heterog_rows},
    {"CM-DARE", cm_dare_rows},        {"transient", transient_rows}};

/// Absolute relative errors of a row's cases, and the share of measurements inside the intervals.
struct Summary {
  double mean = 0, median = 0, worst = 0, coverage = 0;
};

Summary summarise(const Row& row) {
  std::vector<double> errors;
  double inside = 0;
  for (const auto& [predicted, measured] : row.cases) {
    errors.push_back(std::abs(predicted.value / measured - 1));
    if (predicted.low <= measured && measured <= predicted.high) ++inside;
  }
  std::sort(errors.begin(), errors.end());
  const auto n = static_cast<double>(errors.size());
  return {std::accumulate(errors.begin(), errors.end(), 0.0) / n, median(errors), errors.back(),
          inside / n};
}

void print_row(const Row& row, const Summary& summary) {
  fmt::print("{:<34} {:<7} {:>5}  {:>5.1f} {:>6.1f} {:>6.1f}  {:>8.0f}  {:>6.1f} {:<6}  {}\n",
             row.set, row.metric, row.cases.size(), 100 * summary.mean, 100 * summary.median,
             100 * summary.worst, 100 * summary.coverage, 100 * row.to_reach,
             summary.mean <= row.to_reach ? "met" : "missed",
             row.published.empty() ? "-" : row.published);
}

Json to_json(const Row& row, const Summary& summary) {
  return Json{{"set", row.set},
              {"metric", row.metric},
              {"n", row.cases.size()},
              {"mean", summary.mean},
              {"median", summary.median},
              {"worst", summary.worst},
              {"published", row.published},
              {"coverage", summary.coverage},
              {"to_reach", row.to_reach},
              {"protocol", row.protocol}};
}

Result<void> run(const std::string& data, const std::string& own, const std::string& path) {
  fmt::print("absolute relative errors in %; coverage of the 80 % intervals in %\n\n");
  fmt::print("{:<34} {:<7} {:>5}  {:>5} {:>6} {:>6}  {:>8}  {:>13}  {}\n", "set", "metric", "n",
             "mean", "median", "worst", "coverage", "to reach", "published");
  Json json = Json::array();
  std::vector<std::string> missing, protocols;
  std::vector<std::pair<std::string, Rows>> results;
  for (const Set& set : kSets) results.emplace_back(set.name, set.rows(data));
  results.emplace_back("own runs", own_rows(own));
  for (const auto& [name, rows] : results) {
    if (!rows) {
      missing.push_back(fmt::format("{}: {}", name, rows.error().message));
      continue;
    }
    for (const Row& row : *rows) {
      const Summary summary = summarise(row);
      print_row(row, summary);
      protocols.push_back(fmt::format("{}, {}: {}", row.set, row.metric, row.protocol));
      json.push_back(to_json(row, summary));
    }
  }
  fmt::print("\n");
  for (const std::string& line : protocols) fmt::print("{}\n", line);
  for (const std::string& line : missing) fmt::print("missing: {}\n", line);
  return write_file_atomic(path, Json{{"rows", json}}.dump(2) + "\n");
}

}  // namespace
}  // namespace motley::bench

int main(int count, char** arguments) {
  if (count != 4) {
    fmt::print(stderr, "usage: bench_accuracy DATA OWN.json OUT.json\n");
    return 2;
  }
  if (const auto done = motley::bench::run(arguments[1], arguments[2], arguments[3]); !done) {
    fmt::print(stderr, "{}\n", done.error().message);
    return 1;
  }
  return 0;
}
