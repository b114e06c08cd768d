// Sailor's measured plans: time and memory of OPT-350M on GH200 from layer profiles, network fits.
#include "motley/cost/layers/sailor.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "bench/accuracy/row.h"
#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/base/statistics.h"
#include "motley/search/stages/pipeline_stages.h"
#include "motley/search/stages/stage_evaluator.h"
#include "peers/import/csv.h"

namespace motley::bench {
namespace {

using cost::SailorPlan;

constexpr const char* kModel = "OPT-350";
constexpr const char* kKind = "GH-96";
constexpr int kDevicesPerHost = 4;
// By the set's README, its second memory measurement equals another plan's to the byte.
constexpr const char* kWrongSecondMemory = "plan_config_N32_D8.json";

struct MeasuredPlan {
  cost::PipelinePlan plan;
  double seconds = 0, bytes = 0;  // means of the available measurements
};

struct Inputs {
  cost::LayerProfile profile;
  cost::StageNetwork network;
  std::vector<MeasuredPlan> plans;
};

Result<cost::LayerProfile> read_profile(const std::string& folder) {
  cost::LayerProfile profile{.model = kModel};
  const std::string times = fmt::format("{}/profiles/{}/{}/profile.json", folder, kModel, kKind);
  MOTLEY_ASSIGN(const std::string times_text, read_file(times));
  MOTLEY_RETURN_IF_ERROR(cost::add_sailor_times(times_text, times, kKind, profile));
  const std::string sizes = folder + "/llm_info.json";
  MOTLEY_ASSIGN(const std::string sizes_text, read_file(sizes));
  MOTLEY_RETURN_IF_ERROR(cost::add_sailor_sizes(sizes_text, sizes, profile));
  const std::string training = folder + "/configs/training_config_opt_350.json";
  MOTLEY_ASSIGN(const std::string training_text, read_file(training));
  MOTLEY_ASSIGN(const Json json, parse_json(training_text, training));
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, training));
  MOTLEY_ASSIGN(profile.tokens, object.integer("sequence_length"));
  MOTLEY_ASSIGN(const std::int64_t layers, object.integer("num_all_layers"));
  profile.tied = {0, static_cast<std::size_t>(layers) - 1};
  MOTLEY_RETURN_IF_ERROR(cost::verify_layer_profile(profile, cost::built_in_peaks()));
  return profile;
}

Result<SailorPlan> read_plan(const std::string& path) {
  MOTLEY_ASSIGN(const std::string text, read_file(path));
  MOTLEY_ASSIGN(SailorPlan plan, cost::parse_sailor_plan(text, path));
  if (!plan.step || !plan.peak) return usage_error("bench.data", path + ": not measured");
  return plan;
}

Result<MeasuredPlan> read_measured(const std::string& folder, const std::string& file) {
  MOTLEY_ASSIGN(const SailorPlan first, read_plan(folder + "/plans-gh200-opt350/" + file));
  const std::string repeat = folder + "/plans-gh200-opt350-repeat/" + file;
  MeasuredPlan plan{first.plan, first.step->value, static_cast<double>(first.peak->value)};
  if (!std::filesystem::exists(repeat)) return plan;
  MOTLEY_ASSIGN(const SailorPlan second, read_plan(repeat));
  plan.seconds = (plan.seconds + second.step->value) / 2;
  if (file != kWrongSecondMemory)
    plan.bytes = (plan.bytes + static_cast<double>(second.peak->value)) / 2;
  return plan;
}

Result<Inputs> read_inputs(const std::string& folder) {
  Inputs inputs;
  MOTLEY_ASSIGN(inputs.profile, read_profile(folder));
  const std::string network = folder + "/network/network_coeffs_all_homo.json";
  MOTLEY_ASSIGN(const std::string text, read_file(network));
  MOTLEY_ASSIGN(inputs.network, cost::parse_sailor_network(text, network));
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder + "/plans-gh200-opt350"))
    files.push_back(entry.path().filename().string());
  std::sort(files.begin(), files.end());
  for (const std::string& file : files) {
    MOTLEY_ASSIGN(MeasuredPlan plan, read_measured(folder, file));
    inputs.plans.push_back(std::move(plan));
  }
  return inputs;
}

struct RuntimeMemory {
  double context = 0;             // bytes
  double allocator_overhead = 1;  // reserved / in use
};

/// Estimates the memory outside of tensors from another runtime's runs on the same machines.
Result<RuntimeMemory> other_runtime(const std::string& folder) {
  MOTLEY_ASSIGN(const peers::CsvTable table,
                peers::CsvTable::read(folder + "/ops/aceso_runtime_gh200_opt350_memory.csv"));
  std::vector<double> overheads, contexts;
  MOTLEY_ASSIGN(const std::size_t total, table.column("total_mb"));
  MOTLEY_ASSIGN(const std::size_t reserved, table.column("max_reserved"));
  MOTLEY_ASSIGN(const std::size_t allocated, table.column("max_allocated"));
  for (std::size_t row = 0; row < table.rows(); ++row) {
    MOTLEY_ASSIGN(const double whole, table.positive_number(row, total));
    MOTLEY_ASSIGN(const double held, table.positive_number(row, reserved));
    MOTLEY_ASSIGN(const double used, table.positive_number(row, allocated));
    contexts.push_back((whole - held) * 1024 * 1024);
    overheads.push_back(held / used);
  }
  return RuntimeMemory{upper_median(contexts), upper_median(overheads)};
}

/// A prediction linear in one constant, and its measurement.
struct Line {
  double base = 0, slope = 0, measured = 0;
  double at(double constant) const { return base + slope * constant; }
};

/// Finds the constant of least absolute relative errors (a weighted median) outside of `without`.
double fit(const std::vector<Line>& lines, const std::vector<std::size_t>& without) {
  std::vector<std::pair<double, double>> implied;  // constant, weight
  double sum = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (std::find(without.begin(), without.end(), i) != without.end()) continue;
    const auto& [base, slope, measured] = lines[i];
    if (slope <= 0) continue;
    implied.emplace_back((measured - base) / slope, slope / measured);
    sum += slope / measured;
  }
  std::sort(implied.begin(), implied.end());
  double passed = 0;
  for (const auto& [constant, weight] : implied) {
    passed += weight;
    if (passed >= sum / 2) return constant;
  }
  return 1;
}

/// Predicts each case with a constant fitted to all others. The interval's residuals are those of
/// the others, each with a constant fitted without it and the case.
std::vector<Case> leave_one_out(const std::vector<Line>& lines, double least) {
  std::vector<Case> cases;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    std::vector<double> residuals;
    for (std::size_t j = 0; j < lines.size(); ++j)
      if (j != i)
        residuals.push_back(lines[j].measured / lines[j].at(std::max(fit(lines, {i, j}), least)) -
                            1);
    const double predicted = lines[i].at(std::max(fit(lines, {i}), least));
    cases.push_back({cost::conformal_interval(predicted, residuals), lines[i].measured});
  }
  return cases;
}

/// Predicts with a given constant; fits nothing.
std::vector<Case> as_given(const std::vector<Line>& lines, double constant) {
  std::vector<Case> cases;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    std::vector<double> residuals;
    for (std::size_t j = 0; j < lines.size(); ++j)
      if (j != i) residuals.push_back(lines[j].measured / lines[j].at(constant) - 1);
    cases.push_back(
        {cost::conformal_interval(lines[i].at(constant), residuals), lines[i].measured});
  }
  return cases;
}

/// Prices a plan as its runtime runs it: sends block and carry whole activations.
Result<search::StagePrice> price(const Inputs& inputs, const cost::PipelinePlan& plan,
                                 const search::StageRuntime& runtime) {
  const auto pools = search::pools_of(plan, kDevicesPerHost);
  MOTLEY_ASSIGN(const auto costs,
                search::LayerStageCosts::make(inputs.profile, pools,
                                              search::fitted_hops(inputs.network, pools), runtime));
  const search::StageSums sums(costs);
  MOTLEY_ASSIGN(const search::StagePlan stages, search::to_stage_plan(plan, costs));
  return search::StageEvaluator(sums).price(stages);
}

Result<std::vector<Line>> time_lines(const Inputs& inputs, const search::StageRuntime& runtime) {
  std::vector<Line> lines;
  for (const MeasuredPlan& measured : inputs.plans) {
    MOTLEY_ASSIGN(const auto priced, price(inputs, measured.plan, runtime));
    lines.push_back({priced.step.value, 0, measured.seconds});
  }
  return lines;
}

/// Returns peak memory beside the context; the allocator's overhead excludes the gradients' copy.
Result<std::vector<Line>> memory_lines(const Inputs& inputs, double allocator_overhead) {
  std::vector<Line> lines;
  search::StageRuntime without = search::blocking_runtime();
  without.copies_gradients = false;
  for (const MeasuredPlan& measured : inputs.plans) {
    MOTLEY_ASSIGN(const auto whole, price(inputs, measured.plan, search::blocking_runtime()));
    MOTLEY_ASSIGN(const auto used, price(inputs, measured.plan, without));
    double most = 0;
    for (std::size_t s = 0; s < used.spans[0].size(); ++s) {
      const auto bytes = static_cast<double>(used.spans[0][s].peak.value);
      const double copy = static_cast<double>(whole.spans[0][s].peak.value) - bytes;
      most = std::max(most, allocator_overhead * bytes + copy);
    }
    lines.push_back({most, 1, measured.bytes});
  }
  return lines;
}

}  // namespace

Rows sailor_rows(const std::string& data) {
  const std::string folder = data + "/sailor";
  MOTLEY_ASSIGN(const Inputs inputs, read_inputs(folder));
  MOTLEY_ASSIGN(const RuntimeMemory other, other_runtime(folder));
  MOTLEY_ASSIGN(const std::vector<Line> times, time_lines(inputs, search::blocking_runtime()));
  MOTLEY_ASSIGN(const std::vector<Line> overlapped, time_lines(inputs, {}));
  MOTLEY_ASSIGN(const std::vector<Line> peaks, memory_lines(inputs, other.allocator_overhead));
  const std::string time_published = "8.9 % Sailor, 12.2 % Metis";
  const std::string memory_published = "5.9 % Sailor, 50.6 % Metis";
  return std::vector<Row>{
      {"Sailor GH200, nothing fitted", "time",
       "layer profiles and network fits only, sends block and carry whole activations as the "
       "runtime's source has it, against the mean of two measurements",
       time_published, 0.05, as_given(times, 1)},
      {"Sailor GH200, if sends overlapped", "time",
       "the same for a runtime whose messages overlap and are sent in parts: what Motley plans for",
       time_published, 0.05, as_given(overlapped, 1)},
      {"Sailor GH200, nothing fitted", "memory",
       "context and allocator overhead: medians of another runtime's runs on these machines; forms "
       "chosen with these plans in view",
       memory_published, 0.04, as_given(peaks, other.context)},
      {"Sailor GH200, one constant", "memory",
       "context fitted on the other plans; allocator overhead from the other runtime; forms as "
       "above",
       memory_published, 0.04, leave_one_out(peaks, 0)},
  };
}

}  // namespace motley::bench
