#include "peers/import/vtrain.h"

#include <fmt/format.h>

#include <array>

#include "motley/base/file.h"
#include "peers/import/csv.h"

namespace motley::peers {
namespace {

constexpr std::int64_t kTokenKinds = 50257;
constexpr int kLeastRanks = 2, kMostRanks = 8;

struct JobColumn {
  const char* name;
  std::int64_t TransformerJob::*field;
};
constexpr std::array<JobColumn, 9> kJobColumns = {{
    {"global batch", &TransformerJob::global_batch},
    {"micro batch", &TransformerJob::micro_batch},
    {"hidden size", &TransformerJob::hidden},
    {"attention heads", &TransformerJob::heads},
    {"# layers", &TransformerJob::layers},
    {"sequence length", &TransformerJob::sequence},
    {"tensor parallelism", &TransformerJob::tensor},
    {"data parallelism", &TransformerJob::data},
    {"pipeline parallelism", &TransformerJob::pipeline},
}};

Result<TransformerJob> read_job(const CsvTable& table, std::size_t row) {
  TransformerJob job;
  job.vocabulary = kTokenKinds;
  for (const auto& [name, field] : kJobColumns) {
    MOTLEY_ASSIGN(const std::size_t column, table.column(name));
    MOTLEY_ASSIGN(job.*field, table.positive_integer(row, column));
  }
  return job;
}

Result<void> verify_row(const TransformerJob& job, std::int64_t devices, const std::string& place) {
  const std::int64_t wanted = job.tensor * job.data * job.pipeline;
  if (devices != wanted)
    return usage_error(
        "cost.vtrain",
        fmt::format("{}: {} GPUs, but {} tensor * {} data * {} pipeline ranks are {}", place,
                    devices, job.tensor, job.data, job.pipeline, wanted));
  if (const auto verified = verify_job(job); !verified)
    return usage_error("cost.vtrain", fmt::format("{}: {}", place, verified.error().message));
  return {};
}

}  // namespace

Result<std::vector<TransformerRun>> parse_vtrain_runs(std::string_view text,
                                                      const std::string& file) {
  MOTLEY_ASSIGN(const CsvTable table, CsvTable::parse(text, file));
  MOTLEY_ASSIGN(const std::size_t devices_column, table.column("# GPUs"));
  MOTLEY_ASSIGN(const std::size_t time_column, table.column("iteration time (ms)"));
  std::vector<TransformerRun> runs;
  for (std::size_t row = 0; row < table.rows(); ++row) {
    MOTLEY_ASSIGN(const TransformerJob job, read_job(table, row));
    MOTLEY_ASSIGN(const std::int64_t devices, table.positive_integer(row, devices_column));
    MOTLEY_ASSIGN(const double milliseconds, table.positive_number(row, time_column));
    MOTLEY_RETURN_IF_ERROR(verify_row(job, devices, fmt::format("{}:{}", file, table.line(row))));
    runs.push_back({job, Seconds(milliseconds * 1e-3)});
  }
  return runs;
}

Result<std::vector<TransformerRun>> read_vtrain_runs(const std::string& path) {
  MOTLEY_ASSIGN(const std::string text, read_file(path));
  return parse_vtrain_runs(text, path);
}

Result<CollectiveCurve> parse_vtrain_all_reduce(std::string_view text, const std::string& file) {
  MOTLEY_ASSIGN(const CsvTable table, CsvTable::parse(text, file));
  MOTLEY_ASSIGN(const std::size_t size_column, table.column("size(B)"));
  MOTLEY_ASSIGN(std::size_t time_column, table.column("time(ns)"));
  if (const auto second = table.column("time(ns)", 1)) time_column = *second;
  std::vector<CollectivePoint> points;
  for (std::size_t row = 0; row < table.rows(); ++row) {
    MOTLEY_ASSIGN(const std::int64_t bytes, table.positive_integer(row, size_column));
    MOTLEY_ASSIGN(const double nanoseconds, table.positive_number(row, time_column));
    points.push_back({Bytes(bytes), Seconds(nanoseconds * 1e-9)});
  }
  auto curve = CollectiveCurve::build(std::move(points));
  if (!curve) return with_context(file, curve.error());
  return curve;
}

Result<CollectiveCurves> read_vtrain_all_reduce(const std::string& folder) {
  CollectiveCurves curves;
  for (int ranks = kLeastRanks; ranks <= kMostRanks; ++ranks) {
    const std::string path = fmt::format("{}/AR_GPU{}_1M_1024M_LUT.csv", folder, ranks);
    MOTLEY_ASSIGN(const std::string text, read_file(path));
    MOTLEY_ASSIGN(CollectiveCurve curve, parse_vtrain_all_reduce(text, path));
    curves.emplace(ranks, std::move(curve));
  }
  return curves;
}

}  // namespace motley::peers
