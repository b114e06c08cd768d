// NCCL all-reduces measured by others: by size (fit_collective) and by ranks (fit_transport).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "bench/accuracy/row.h"
#include "motley/cost/collective_times.h"
#include "motley/cost/links/collective_fit.h"
#include "peers/import/csv.h"

namespace motley::bench {
namespace {

using Samples = std::vector<cost::CollectiveSample>;
/// Samples ordered by size, by number of ranks.
using Curves = std::map<int, Samples>;

/// Reads nccl-tests on one node; in-place times, the second pair of columns.
Result<Curves> read_vtrain(const std::string& data, const std::string& kind) {
  Curves curves;
  for (int ranks = 2; ranks <= 8; ++ranks) {
    MOTLEY_ASSIGN(const peers::CsvTable table,
                  peers::CsvTable::read(fmt::format(
                      "{}/vtrain/allreduce/{}/AR_GPU{}_1M_1024M_LUT.csv", data, kind, ranks)));
    MOTLEY_ASSIGN(const std::size_t bytes, table.column("size(B)"));
    MOTLEY_ASSIGN(const std::size_t time, table.column("time(ns)", 1));
    for (std::size_t row = 0; row < table.rows(); ++row) {
      MOTLEY_ASSIGN(const double size, table.positive_number(row, bytes));
      MOTLEY_ASSIGN(const double nanoseconds, table.positive_number(row, time));
      curves[ranks].push_back({ranks, size, Seconds(nanoseconds * 1e-9)});
    }
  }
  return curves;
}

/// Reads all-reduces of 16-bit floats inside one node, by device kind.
Result<std::map<std::string, Curves>> read_sailor(const std::string& data) {
  MOTLEY_ASSIGN(const peers::CsvTable table,
                peers::CsvTable::read(data + "/sailor/ops/collectives_fp16.csv"));
  std::vector<std::size_t> columns;
  for (const char* name : {"gpu", "collective", "n_gpus", "data_size(MB)", "time(ms)"}) {
    MOTLEY_ASSIGN(const std::size_t column, table.column(name));
    columns.push_back(column);
  }
  std::map<std::string, Curves> kinds;
  for (std::size_t row = 0; row < table.rows(); ++row) {
    if (table.text(row, columns[1]) != "all_reduce") continue;
    MOTLEY_ASSIGN(const auto ranks, table.positive_integer(row, columns[2]));
    MOTLEY_ASSIGN(const double megabytes, table.positive_number(row, columns[3]));
    MOTLEY_ASSIGN(const double milliseconds, table.positive_number(row, columns[4]));
    kinds[table.text(row, columns[0])][static_cast<int>(ranks)].push_back(
        {static_cast<int>(ranks), megabytes * 1e6, Seconds(milliseconds * 1e-3)});
  }
  for (auto& [kind, curves] : kinds) {
    for (auto& [ranks, samples] : curves) {
      std::stable_sort(samples.begin(), samples.end(),
                       [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
    }
  }
  return kinds;
}

double time_of(const cost::TransportFit& fit, const cost::CollectiveSample& sample) {
  return fit.among(sample.ranks).at(sample.bytes).value;
}

Result<cost::TransportFit> fit_ring(const Curves& curves, const std::vector<int>& ranks) {
  Samples samples;
  for (const int n : ranks) {
    samples.insert(samples.end(), curves.at(n).begin(), curves.at(n).end());
  }
  return cost::fit_transport(cost::Collective::kAllReduce, cost::Algorithm::kRing, samples);
}

std::vector<double> residuals(const cost::TransportFit& fit, const Samples& samples) {
  std::vector<double> result;
  for (const auto& sample : samples)
    result.push_back(sample.seconds.value / time_of(fit, sample) - 1);
  return result;
}

void add_cases(const cost::TransportFit& fit, const Samples& samples,
               const std::vector<double>& residuals, Row& row) {
  for (const auto& sample : samples) {
    row.cases.push_back(
        {cost::conformal_interval(time_of(fit, sample), residuals), sample.seconds.value});
  }
}

Result<Row> switched_row(const Curves& a100) {
  Row row{"NCCL all-reduce, 8 A100",
          "time",
          "four terms fitted on groups of 2 to 4, interval from 4 as predicted by 2 and 3; "
          "predicted: 5 to 8, 1 MiB to 1 GiB",
          "",
          0.05,
          {}};
  MOTLEY_ASSIGN(const cost::TransportFit before, fit_ring(a100, {2, 3}));
  MOTLEY_ASSIGN(const cost::TransportFit fit, fit_ring(a100, {2, 3, 4}));
  const std::vector<double> spread = residuals(before, a100.at(4));
  for (int n = 5; n <= 8; ++n) add_cases(fit, a100.at(n), spread, row);
  return row;
}

Result<Row> pcie_row(const std::map<std::string, Curves>& kinds) {
  Row row{"NCCL all-reduce, 8 on PCIe",
          "time",
          "RTX 2080 and Titan RTX: fitted on groups of 2 and 4, interval from the other kind; "
          "predicted: 8",
          "",
          0.05,
          {}};
  const std::vector<std::string> names = {"RTX-2080", "Titan-RTX"};
  std::vector<cost::TransportFit> fits;
  for (const std::string& name : names) {
    MOTLEY_ASSIGN(cost::TransportFit fit, fit_ring(kinds.at(name), {2, 4}));
    fits.push_back(std::move(fit));
  }
  for (std::size_t i = 0; i < 2; ++i) {
    add_cases(fits[i], kinds.at(names[i]).at(8),
              residuals(fits[1 - i], kinds.at(names[1 - i]).at(8)), row);
  }
  return row;
}

/// Adds one curve: of four sizes one is fitted, the next gives the interval, two are predicted.
Result<void> add_curve(const Samples& samples, Row& row) {
  Samples fitted;
  for (std::size_t i = 0; i < samples.size(); i += 4) fitted.push_back(samples[i]);
  MOTLEY_ASSIGN(const cost::SizeCurve curve, cost::fit_collective(fitted));
  std::vector<double> spread;
  for (std::size_t i = 1; i < samples.size(); i += 4) {
    spread.push_back(samples[i].seconds / curve.at(samples[i].bytes) - 1);
  }
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (i % 4 < 2) continue;
    row.cases.push_back({cost::conformal_interval(curve.at(samples[i].bytes).value, spread),
                         samples[i].seconds.value});
  }
  return {};
}

/// Predicts as for a plan: some numbers of ranks are in the store, the others lie between them.
Result<Row> between_row(const std::string& kind, const Curves& curves) {
  Row row{"NCCL all-reduce, ranks between, " + kind,
          "time",
          "of 2, 4 and 8 in the store, interval from 3; predicted: 5 to 7",
          "",
          0.05,
          {}};
  MOTLEY_ASSIGN(cost::ProfileStore store, cost::ProfileStore::open(":memory:"));
  std::vector<cost::CollectiveEntry> entries;
  for (const int ranks : {2, 4, 8})
    for (const auto& sample : curves.at(ranks))
      entries.push_back({"motley::all_reduce", "nccl", "local", ranks,
                         Bytes(static_cast<std::int64_t>(sample.bytes)), sample.seconds, 0, 1});
  MOTLEY_RETURN_IF_ERROR(store.put(entries));
  MOTLEY_ASSIGN(const auto times, cost::CollectiveTimes::build(store));
  std::vector<double> spread;
  for (const int ranks : {3, 5, 6, 7}) {
    MOTLEY_ASSIGN(const auto curve, times.curve("motley::all_reduce", "local", ranks, "nccl"));
    for (const auto& sample : curves.at(ranks)) {
      const Seconds predicted = curve.at(sample.bytes);
      if (ranks == 3)
        spread.push_back(sample.seconds / predicted - 1);
      else
        row.cases.push_back(
            {cost::conformal_interval(predicted.value, spread), sample.seconds.value});
    }
  }
  return row;
}

}  // namespace

Rows collective_rows(const std::string& data) {
  MOTLEY_ASSIGN(const Curves a100, read_vtrain(data, "a100"));
  MOTLEY_ASSIGN(const Curves v100, read_vtrain(data, "v100"));
  MOTLEY_ASSIGN(const auto kinds, read_sailor(data));
  MOTLEY_ASSIGN(Row switched, switched_row(a100));
  MOTLEY_ASSIGN(Row pcie, pcie_row(kinds));
  const std::string protocol =
      "a curve over the size for each kind and number of ranks, fitted on every fourth size, "
      "interval from the next; predicted: the others";
  Row nccl_tests{"NCCL all-reduce by size, vTrain", "time", protocol, "", 0.05, {}};
  for (const Curves* curves : {&a100, &v100}) {
    for (const auto& [ranks, samples] : *curves) {
      MOTLEY_RETURN_IF_ERROR(add_curve(samples, nccl_tests));
    }
  }
  Row sailor{"NCCL all-reduce by size, Sailor", "time", protocol, "", 0.05, {}};
  for (const auto& [kind, curves] : kinds) {
    for (const auto& [ranks, samples] : curves) {
      MOTLEY_RETURN_IF_ERROR(add_curve(samples, sailor));
    }
  }
  MOTLEY_ASSIGN(Row between, between_row("A100", a100));
  // Cube mesh: links depend on the joined ranks, so one number of ranks tells little about another.
  MOTLEY_ASSIGN(Row cube_mesh, between_row("V100", v100));
  return std::vector<Row>{switched, pcie, between, cube_mesh, nccl_tests, sailor};
}

}  // namespace motley::bench
