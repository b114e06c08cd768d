#include "bench/stages_harp.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "bench/stages_case.h"
#include "bench/stages_restricted.h"
#include "motley/base/text.h"
#include "peers/import/csv.h"

namespace motley::bench {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

struct Gpt {
  double sequence, hidden, blocks, heads, vocabulary;
};

/// Units of HARP: two a block, embedding and head; a stage is data parallel over its devices. Rates
/// of matrix products as its configuration has them, reached in full; links as it configures them.
class HarpCosts : public search::StageCosts {
 public:
  explicit HarpCosts(const Gpt& gpt) : gpt_(gpt) {
    constexpr std::int64_t kFree = 32'500'000'000, kAll = 40'000'000'000;
    pools_ = {{"V100", "", 8, 8, Bytes(kFree), 0},
              {"A100", "", 2, 2, Bytes(kAll), 1},
              {"A101", "", 2, 2, Bytes(kAll), 2}};
    for (std::size_t pool = 0; pool < pools_.size(); ++pool)
      for (int degree = 1; degree <= pools_[pool].per_host; degree *= 2)
        for (const bool recomputes : {false, true}) units_.emplace_back(pool, degree, recomputes);
  }

  std::size_t layers() const override { return static_cast<std::size_t>(2 * gpt_.blocks) + 2; }
  const std::vector<search::DevicePool>& pools() const override { return pools_; }
  const std::vector<search::StageUnit>& units() const override { return units_; }
  const std::vector<std::int64_t>& micro_batches() const override { return batches_; }
  bool knows(std::size_t unit, std::int64_t micro) const override {
    return micro >= units_[unit].degree() && micro <= batches_.back();
  }
  std::vector<search::LayerWork> work(std::size_t unit, std::int64_t micro) const override {
    const int degree = units_[unit].degree();
    const double rate = units_[unit].pool() == 0 ? 127e12 : 312e12;
    // Samples do not divide evenly: the fullest device sets the pace.
    const double samples = std::ceil(static_cast<double>(micro) / degree);
    std::vector<search::LayerWork> all;
    for (std::size_t i = 0; i < layers(); ++i) {
      const double forward = flops(i) * samples / rate;
      const double sums = 2.0 * (degree - 1) / degree * 2 * weights(i) / (25 * kGiB);
      const double backward = (units_[unit].recomputes ? 3 : 2) * forward;
      all.push_back({Seconds(forward + 1e-9), Seconds(backward + 1e-9), Seconds(sums)});
    }
    return all;
  }
  std::vector<search::LayerBytes> bytes(std::size_t unit) const override {
    const int degree = units_[unit].degree();
    const double given = 2 * gpt_.sequence * gpt_.hidden;
    std::vector<search::LayerBytes> all;
    for (std::size_t i = 0; i < layers(); ++i) {
      const bool is_block = i > 0 && i + 1 < layers();
      // Korthikanti et al. (2022), half a block; the head's logits in f32.
      const double inner = is_block ? (34 * gpt_.sequence * gpt_.hidden +
                                       5 * gpt_.heads * gpt_.sequence * gpt_.sequence) /
                                          2
                           : i == 0 ? given
                                    : 6 * gpt_.sequence * gpt_.vocabulary;
      const auto part = [&](double bytes) { return Bytes(std::llround(bytes / degree)); };
      all.push_back({Bytes(std::llround(16 * weights(i))), part(2 * weights(i)),
                     part(units_[unit].recomputes ? given : inner), part(inner),
                     Bytes(std::llround(given))});
    }
    return all;
  }
  Bytes held(std::size_t) const override { return Bytes(0); }
  std::optional<search::Hop> hop(search::HopEnd from, search::HopEnd to, search::HopReach reach,
                                 Bytes) const override {
    if (reach == search::HopReach::kSameHost)
      return search::Hop{Seconds(1e-5), BytesPerSecond(25 * kGiB)};
    if (from.pool == to.pool) return std::nullopt;  // one host each
    // V100 to A101 is not in the planner's input, but plan E was run over it.
    const bool slow = from.pool == 0 || to.pool == 0;
    return search::Hop{Seconds(slow ? 1e-3 : 2e-4), BytesPerSecond(0.625 * kGiB)};
  }
  BytesPerSecond host_rate(std::size_t) const override { return BytesPerSecond(0.625 * kGiB); }
  std::optional<std::pair<std::size_t, std::size_t>> tied() const override { return std::nullopt; }
  const std::vector<std::string>& notes() const override { return notes_; }

  std::size_t unit_of(std::size_t pool, int degree) const {
    std::size_t unit = 0;
    while (units_[unit].pool() != pool || units_[unit].degree() != degree ||
           !units_[unit].recomputes)
      ++unit;
    return unit;
  }

 private:
  double weights(std::size_t i) const {
    if (i > 0 && i + 1 < layers()) return 6 * gpt_.hidden * gpt_.hidden;
    return gpt_.vocabulary * gpt_.hidden;
  }
  /// Forward of a sample.
  double flops(std::size_t i) const {
    if (i == 0) return 0;
    const double s = gpt_.sequence, h = gpt_.hidden;
    if (i + 1 == layers()) return 2 * s * h * gpt_.vocabulary;
    return 12 * s * h * h * (1 + s / (6 * h));
  }

  Gpt gpt_;
  std::vector<search::DevicePool> pools_;
  std::vector<search::StageUnit> units_;
  std::vector<std::int64_t> batches_ = {4, 8, 16};
  std::vector<std::string> notes_;
};

/// "1:2:0-12;0:4:13-24": sub-cluster, devices, units.
Result<search::StagePlan> parse_stages(const std::string& text, const HarpCosts& costs,
                                       std::int64_t batch, std::int64_t micro_batches) {
  search::StageReplica replica{{}, batch / micro_batches, batch};
  for (const std::string_view stage : split(text, ';')) {
    std::vector<std::int64_t> numbers;
    for (const std::string_view part : split(stage, ':'))
      for (const std::string_view number : split(part, '-')) {
        const auto value = find_integer(number);
        if (!value) return usage_error("bench.data", "stages: " + text);
        numbers.push_back(*value);
      }
    if (numbers.size() != 4) return usage_error("bench.data", "stages: " + text);
    replica.stages.push_back(
        {static_cast<std::size_t>(numbers[2]), static_cast<std::size_t>(numbers[3]) + 1,
         costs.unit_of(static_cast<std::size_t>(numbers[0]), static_cast<int>(numbers[1]))});
  }
  search::StagePlan plan{{replica}};
  if (!place_stages(plan, costs, search::StagePlacing::kInOrder))
    return usage_error("bench.data", "stages do not fit: " + text);
  return plan;
}

/// A plan that was measured.
struct MeasuredPlan {
  std::string id, model, stages;
  Gpt gpt;
  std::int64_t batch = 0, micro_batches = 0;
  double step = 0;  // s
};

Result<std::vector<MeasuredPlan>> read_plans(const std::string& data) {
  MOTLEY_ASSIGN(const peers::CsvTable table, peers::CsvTable::read(data + "/harp/plans.csv"));
  MOTLEY_ASSIGN(const std::size_t stages, table.column("stages"));
  MOTLEY_ASSIGN(const std::size_t measured_at, table.column("iteration_s"));
  MOTLEY_ASSIGN(const std::size_t hidden, table.column("hidden"));
  MOTLEY_ASSIGN(const std::size_t blocks, table.column("blocks"));
  MOTLEY_ASSIGN(const std::size_t heads, table.column("heads"));
  MOTLEY_ASSIGN(const std::size_t batch_at, table.column("batch"));
  MOTLEY_ASSIGN(const std::size_t micro_at, table.column("microbatches"));
  std::vector<MeasuredPlan> plans;
  for (std::size_t row = 0; row < table.rows(); ++row) {
    const std::string id = table.text(row, 0);
    if (id != "D" && id != "E" && id != "E2") continue;
    if (row > 0 && table.text(row - 1, 0) == id) continue;  // a second measurement
    MOTLEY_ASSIGN(const double h, table.positive_number(row, hidden));
    MOTLEY_ASSIGN(const double n, table.positive_number(row, blocks));
    MOTLEY_ASSIGN(const double a, table.positive_number(row, heads));
    MOTLEY_ASSIGN(const std::int64_t batch, table.positive_integer(row, batch_at));
    MOTLEY_ASSIGN(const std::int64_t micro, table.positive_integer(row, micro_at));
    MOTLEY_ASSIGN(const double measured, table.positive_number(row, measured_at));
    plans.push_back({id,
                     table.text(row, 1),
                     table.text(row, stages),
                     {1024, h, n, a, 51200},
                     batch,
                     micro,
                     measured});
  }
  return plans;
}

}  // namespace

Result<std::vector<StageInstance>> harp_instances(const std::string& data) {
  MOTLEY_ASSIGN(const auto plans, read_plans(data));
  std::vector<StageInstance> all;
  for (const MeasuredPlan& each : plans)
    all.push_back({"HARP " + each.id, std::make_unique<const HarpCosts>(each.gpt), each.batch});
  return all;
}

Result<void> run_harp(const std::string& data, Json& rows) {
  MOTLEY_ASSIGN(const auto plans, read_plans(data));
  for (const auto& [id, model, stages, gpt, batch, micro, measured] : plans) {
    const HarpCosts costs(gpt);
    MOTLEY_ASSIGN(search::StagePlan harp, parse_stages(stages, costs, batch, micro));
    const search::StageSums sums(costs);
    const search::StageEvaluator evaluator(sums);
    MOTLEY_RETURN_IF_ERROR(evaluator.choose_schedule(harp.replicas[0]));
    MOTLEY_ASSIGN(const search::StagePrice price, evaluator.price(harp));
    const double start = cpu_seconds();
    MOTLEY_ASSIGN(const auto outcome, search::find_stage_plan({&costs, batch}));
    const double seconds = cpu_seconds() - start;
    if (!outcome.best) return usage_error("bench.stages", "no plan");
    const double step = outcome.best->price.step.value;
    MOTLEY_ASSIGN(const Restrictions restricted, find_restrictions({&costs, batch}));
    fmt::print(
        "HARP {:<2} {}: its plan {:.2f} s at nominal rates, measured {:.2f} s; Motley's "
        "{:.2f} s ({:.2f} of it), bound {:.2f} s, {:.2f} CPU s\n  restricted, over that:{}\n",
        id, model, price.step.value, measured, step, step / price.step.value,
        outcome.lower_bound.value, seconds, restricted.columns(step));
    rows.push_back({{"model", model + " " + id},
                    {"cluster", "8 V100 + 2 A100 + 2 A101"},
                    {"planner", "stages"},
                    {"predicted_step_s", step},
                    {"best_baseline_s", price.step.value},
                    {"restricted_s", restricted.to_json()},
                    {"lower_bound_s", outcome.lower_bound.value},
                    {"plan_cpu_s", seconds},
                    {"reference_s", measured}});
  }
  return {};
}

}  // namespace motley::bench
