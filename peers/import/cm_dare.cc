#include "peers/import/cm_dare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "motley/base/statistics.h"
#include "peers/import/csv.h"

namespace motley::peers {
namespace {

constexpr double kBatch = 128;
constexpr double kSessionGap = 6 * 3600;  // s
constexpr std::int64_t kTile = 32;

Result<CsvTable> read_table(const std::string& path) {
  const std::string filtered = path + ".filtered.csv";
  return CsvTable::read(std::filesystem::exists(filtered) ? filtered : path + ".csv");
}

/// A table's columns by name, found once.
class Columns {
 public:
  static Result<Columns> find(const CsvTable& table, const std::vector<std::string>& names) {
    Columns columns;
    for (const std::string& name : names) {
      MOTLEY_ASSIGN(columns.places_[name], table.column(name));
    }
    return columns;
  }
  std::size_t operator[](const std::string& name) const { return places_.at(name); }

 private:
  std::map<std::string, std::size_t> places_;
};

/// Returns the number in a cell, or 0 for an empty one.
Result<double> number_or_zero(const CsvTable& table, std::size_t row, std::size_t column) {
  if (table.text(row, column).empty()) return 0.0;
  return table.positive_number(row, column);
}

/// Returns a raw trace's file name: "k80_cus4" for custom4, "k80_shake32_d32" for shake small 32d.
std::string trace_name(const CmDareSpeed& speed) {
  std::string name;
  for (const char c : speed.gpu + "_" + speed.model)
    if (c != ' ') name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const std::vector<std::pair<std::string, std::string>> others = {
      {"custom", "cus"}, {"shakesmall32d", "shake32_d32"}, {"shakemid32d", "shake64_d32"}};
  for (const auto& [from, to] : others)
    if (const auto at = name.find(from); at != std::string::npos) name.replace(at, from.size(), to);
  return name;
}

struct Rows {
  std::vector<CmDareSpeed> speeds;
  std::map<std::string, double> tensors, widest;  // by model, from the rows that have them

  CmDareSpeed& of(const std::string& model, const std::string& gpu) {
    for (CmDareSpeed& speed : speeds)
      if (speed.model == model && speed.gpu == gpu) return speed;
    CmDareSpeed& speed = speeds.emplace_back();
    speed.model = model;
    speed.gpu = gpu;
    return speed;
  }
};

Result<Rows> read_rows(const CsvTable& table) {
  MOTLEY_ASSIGN(const Columns columns,
                Columns::find(table, {"GPU TFLOPS", "Model FLOPs", "Number of Parameters",
                                      "Step Time (s)", "GPU (temp)", "Model (temp)",
                                      "Number of Tensors", "Max Tensor Size (MB)"}));
  Rows rows;
  for (std::size_t r = 0; r < table.rows(); ++r) {
    const std::string& model = table.text(r, columns["Model (temp)"]);
    CmDareSpeed& speed = rows.of(model, table.text(r, columns["GPU (temp)"]));
    MOTLEY_ASSIGN(const double tflops, table.positive_number(r, columns["GPU TFLOPS"]));
    speed.peak_flops_per_second = tflops * 1e12;
    MOTLEY_ASSIGN(speed.flops_per_image, table.positive_number(r, columns["Model FLOPs"]));
    MOTLEY_ASSIGN(speed.parameters, table.positive_number(r, columns["Number of Parameters"]));
    MOTLEY_ASSIGN(const double step, table.positive_number(r, columns["Step Time (s)"]));
    speed.step_s.push_back(step);
    MOTLEY_ASSIGN(const double tensors, number_or_zero(table, r, columns["Number of Tensors"]));
    MOTLEY_ASSIGN(const double widest, number_or_zero(table, r, columns["Max Tensor Size (MB)"]));
    if (tensors > 0) rows.tensors[model] = tensors;
    if (widest > 0) rows.widest[model] = widest;
  }
  return rows;
}

double mean_width(const CmDareSpeed& speed) {
  return std::sqrt(speed.parameters / (3 * speed.tensors));
}

std::int64_t channels_of(const CmDareSpeed& speed, double widest_mib) {
  const double channels = widest_mib > 0 ? std::sqrt(widest_mib * 1048576 / 4 / 9) / 4
                                         : 16 * std::round(mean_width(speed) / 2.25 / 16);
  return std::max<std::int64_t>(1, std::llround(channels));
}

/// Returns the wall time of the first reading of a model's raw trace, or 0 without one.
Result<double> start_of(const std::string& folder, const CmDareSpeed& speed) {
  const std::string path = folder + "/speed/traces/" + trace_name(speed) + ".csv";
  if (!std::filesystem::exists(path)) return 0.0;
  MOTLEY_ASSIGN(const CsvTable table, CsvTable::read(path));
  MOTLEY_ASSIGN(const std::size_t column, table.column("Wall time"));
  if (table.rows() == 0) return 0.0;
  return number_or_zero(table, 0, column);
}

Result<void> set_sessions(const std::string& folder, std::vector<CmDareSpeed>& speeds) {
  std::map<std::string, std::vector<std::pair<double, std::size_t>>> starts;  // by gpu
  for (std::size_t i = 0; i < speeds.size(); ++i) {
    MOTLEY_ASSIGN(const double start, start_of(folder, speeds[i]));
    if (start > 0) starts[speeds[i].gpu].emplace_back(start, i);
  }
  int session = -1;
  for (auto& [gpu, of_gpu] : starts) {
    std::sort(of_gpu.begin(), of_gpu.end());
    double last = -kSessionGap;
    for (const auto& [start, i] : of_gpu) {
      if (start - last >= kSessionGap) ++session;
      speeds[i].session = session;
      last = start;
    }
  }
  return {};
}

Bytes megabytes(double count) { return Bytes(std::llround(count * 1e6)); }

Result<std::set<std::string>> models_of(const std::string& path) {
  std::set<std::string> models;
  if (!std::filesystem::exists(path)) return models;
  MOTLEY_ASSIGN(const CsvTable table, CsvTable::read(path));
  MOTLEY_ASSIGN(const std::size_t column, table.column("Model"));
  for (std::size_t r = 0; r < table.rows(); ++r) models.insert(table.text(r, column));
  return models;
}

}  // namespace

Result<std::vector<CmDareSpeed>> read_cm_dare_speeds(const std::string& folder) {
  const std::string path = folder + "/speed/0latency_norm_computation";
  MOTLEY_ASSIGN(const CsvTable table, read_table(path));
  MOTLEY_ASSIGN(Rows rows, read_rows(table));
  for (CmDareSpeed& speed : rows.speeds) {
    speed.tensors = rows.tensors[speed.model];
    if (!(speed.tensors > 0))
      return usage_error(
          "cost.import",
          fmt::format("{}: model '{}' has no number of tensors in any row", path, speed.model));
    speed.channels = channels_of(speed, rows.widest[speed.model]);
  }
  MOTLEY_RETURN_IF_ERROR(set_sessions(folder, rows.speeds));
  return std::move(rows.speeds);
}

StepWork work_of(const CmDareSpeed& speed) {
  double padding = 0;
  for (const std::int64_t stage : {1, 2, 4})
    padding += tile_padding(stage * speed.channels, kTile) / 3;
  const double flops = speed.flops_per_image * kBatch;
  const double outputs = flops / (3 * 2 * 9 * mean_width(speed));
  return {speed.tensors, Flops(flops * padding), Bytes(std::llround(outputs * 4))};
}

Result<std::vector<CmDareCheckpoint>> read_cm_dare_checkpoints(const std::string& folder) {
  MOTLEY_ASSIGN(const CsvTable table, CsvTable::read(folder + "/checkpoint/whole_data.csv"));
  MOTLEY_ASSIGN(const Columns columns,
                Columns::find(table, {"Model", "Duration", "Weight File Size", "Meta File Size"}));
  MOTLEY_ASSIGN(const std::set<std::string> later,
                models_of(folder + "/checkpoint/unaggregated_test.csv"));
  std::vector<CmDareCheckpoint> result;
  for (std::size_t r = 0; r < table.rows(); ++r) {
    const std::string& model = table.text(r, columns["Model"]);
    MOTLEY_ASSIGN(const double weights, table.positive_number(r, columns["Weight File Size"]));
    MOTLEY_ASSIGN(const double graph, table.positive_number(r, columns["Meta File Size"]));
    MOTLEY_ASSIGN(const double seconds, table.positive_number(r, columns["Duration"]));
    const auto is_model = [&](const CmDareCheckpoint& checkpoint) {
      return checkpoint.model == model;
    };
    auto found = std::find_if(result.begin(), result.end(), is_model);
    if (found == result.end())
      found = result.insert(
          found,
          {model, {megabytes(weights), megabytes(graph)}, {}, later.count(model) > 0 ? 1 : 0});
    found->seconds.push_back(seconds);
  }
  return result;
}

Result<double> read_trace_speed(const std::string& path) {
  MOTLEY_ASSIGN(const CsvTable table, CsvTable::read(path));
  MOTLEY_ASSIGN(const std::size_t column, table.column("Value"));
  std::vector<double> speeds;
  for (std::size_t r = 1; r < table.rows(); ++r) {
    if (table.text(r, column).empty()) continue;
    MOTLEY_ASSIGN(const double speed, table.number(r, column));
    speeds.push_back(speed);
  }
  if (speeds.empty() || !(median(speeds) > 0))
    return usage_error("cost.import",
                       fmt::format("{}: no reading after the first, wanted speeds above 0", path));
  return median(speeds);
}

Result<std::vector<SpeedPoint>> read_cm_dare_curve(const std::string& folder,
                                                   const std::string& set,
                                                   const std::string& model) {
  std::vector<SpeedPoint> curve;
  for (std::int64_t workers = 1; workers <= 8; ++workers) {
    const std::string path =
        fmt::format("{}/cluster_size/{}/{}_{}.csv", folder, set, model, workers);
    MOTLEY_ASSIGN(const double speed, read_trace_speed(path));
    curve.push_back({workers, speed});
  }
  return curve;
}

}  // namespace motley::peers
