// Plans of stages, replicas and micro-batches over unequal devices; what each restriction costs
// that other planners have (`motley plan --planner sailor` and so on): their best plan's step over
// the whole space's; and what these planners reported. Usage: bench_stages DATA OUT.json [PART OF A
// NAME]; DATA holds sailor, zorse and harp. Prints one table; a row an instance. Planning time
// counts what `motley plan --planner stages` does: reading files and clusters, too.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bench/stages_case.h"
#include "bench/stages_harp.h"
#include "bench/stages_instances.h"
#include "bench/stages_restricted.h"
#include "bench/stages_zones.h"
#include "motley/base/file.h"
#include "motley/base/json.h"

namespace motley {
namespace {

using bench::cpu_seconds;

Result<Json> run_sailor(const std::string& data, const bench::SailorCase& of) {
  MOTLEY_ASSIGN(const bench::PlannedCase planned,
                bench::plan_case(bench::sailor_files(data, of.model),
                                 bench::sailor_cluster(of.fast, of.slow), of.batch));
  const search::StageOutcome& outcome = planned.outcome;
  const double step = outcome.best->price.step.value, seconds = planned.cpu_seconds;
  const bench::Restrictions& restricted = planned.restricted;
  const double apart = outcome.apart_bound.value_or(outcome.lower_bound).value;
  fmt::print(
      "{:<12} {:>4} + {:<4} {:>8.3f} {:>8.3f} {:>8.3f} {:>5.1f} % {:>8.3f} {:>8.2f} {:>6.2f}{}\n",
      of.model, of.fast, of.slow, step, planned.program.value, outcome.lower_bound.value,
      100 * outcome.gap(), apart, of.step_s, seconds, restricted.columns(step));
  std::fflush(stdout);
  return Json{{"model", of.model},
              {"cluster", fmt::format("{} a100-40g + {} v100-16g", of.fast, of.slow)},
              {"planner", "stages"},
              {"predicted_step_s", step},
              {"program_step_s", planned.program.value},
              {"best_baseline_s", restricted.best()},
              {"restricted_s", restricted.to_json()},
              {"lower_bound_s", outcome.lower_bound.value},
              {"apart_bound_s", apart},
              {"plan_cpu_s", seconds},
              {"reference_s", of.step_s},
              {"reference_cpu_s", of.cpu_s > 0 ? Json(of.cpu_s) : Json(nullptr)}};
}

/// Zorse's published instance.
Result<Json> run_zorse(const std::string& data) {
  constexpr double kPublished = 7.721375;  // s, predicted by its own formula
  const double start = cpu_seconds();
  MOTLEY_ASSIGN(const bench::StageInstance instance, bench::zorse_instance(data));
  const search::StageCosts& costs = *instance.costs;
  const search::StageQuestion question{&costs, instance.batch};
  MOTLEY_ASSIGN(search::StageOutcome outcome, search::find_stage_plan(question));
  const double seconds = cpu_seconds() - start;
  if (!outcome.best) return usage_error("bench.stages", "no plan");
  MOTLEY_ASSIGN(const bench::Restrictions restricted, bench::find_restrictions(question));
  const double step = outcome.best->price.step.value, bound = outcome.lower_bound.value;
  std::string used;
  const std::vector<int> devices = search::used_devices(outcome.best->plan, costs);
  for (std::size_t pool = 0; pool < devices.size(); ++pool)
    used += fmt::format("{}{} {}", pool == 0 ? "" : ", ", devices[pool], costs.pools()[pool].kind);
  fmt::print(
      "LLaMA 1.3B on 2 L4, A6000, P40: {:.3f} s with {}, bound {:.3f} s, published {:.3f} s, "
      "{:.2f} "
      "CPU s\n  restricted, over that:{}\n",
      step, used, bound, kPublished, seconds, restricted.columns(step));
  return Json{{"model", "deepspeedllama_tiny"},
              {"cluster", "2 l4 + a6000 + p40"},
              {"planner", "stages"},
              {"predicted_step_s", step},
              {"best_baseline_s", restricted.best()},
              {"restricted_s", restricted.to_json()},
              {"lower_bound_s", bound},
              {"plan_cpu_s", seconds},
              {"reference_s", kPublished}};
}

/// An invented model on 2,048 devices of six kinds.
Result<Json> run_many() {
  const double start = cpu_seconds();
  MOTLEY_ASSIGN(const bench::StageInstance instance, bench::many_instance());
  const search::StageQuestion question{instance.costs.get(), instance.batch};
  MOTLEY_ASSIGN(const search::StageOutcome outcome, search::find_stage_plan(question));
  const double seconds = cpu_seconds() - start;
  if (!outcome.best) return usage_error("bench.stages", "no plan");
  MOTLEY_ASSIGN(const auto uniform, peers::find_restricted(peers::StageSpace::kUniform, question));
  const double best = uniform.best ? uniform.best->price.step.value : INFINITY;
  fmt::print(
      "2,048 devices of 6 kinds in 4 places, 96 layers: {:.3f} s, uniform for each kind {:.3f} s, "
      "bound of rates {:.3f} s, {:.1f} CPU s\n",
      outcome.best->price.step.value, best, outcome.lower_bound.value, seconds);
  return Json{{"model", "invented, 96 layers"},
              {"cluster", "2048 devices, 6 kinds, 4 places"},
              {"planner", "stages"},
              {"predicted_step_s", outcome.best->price.step.value},
              {"best_baseline_s", best},
              {"lower_bound_s", outcome.lower_bound.value},
              {"plan_cpu_s", seconds},
              {"reference_s", nullptr}};
}

int main_of(const std::string& data, const std::string& out, const std::string& part) {
  Json rows = Json::array();
  fmt::print("{:<12} {:<11} {:>8} {:>8} {:>8} {:>7} {:>8} {:>8} {:>6}{}  restricted, over stages\n",
             "model", "A100 + V100", "stages", "program", "bound", "gap", "apart", "reported",
             "CPU s", bench::restriction_heads());
  for (const bench::SailorCase& of : bench::sailor_cases()) {
    const std::string name = of.name();
    if (name.find(part) == std::string::npos) continue;
    const auto row = run_sailor(data, of);
    if (!row) {
      fmt::print(stderr, "{}: {}\n", name, row.error().message);
      return 1;
    }
    rows.push_back(*row);
  }
  using Adder = std::function<Result<void>()>;
  const auto add_row = [&](const std::function<Result<Json>()>& run) -> Adder {
    return [&rows, run]() -> Result<void> {
      MOTLEY_ASSIGN(Json row, run());
      rows.push_back(std::move(row));
      return {};
    };
  };
  const std::pair<std::string, Adder> others[] = {
      {"zorse", add_row([&] { return run_zorse(data); })},
      {"harp", [&] { return bench::run_harp(data, rows); }},
      {"zones", [&] { return bench::run_zones(data, rows); }},
      {"2048", add_row(run_many)}};
  for (const auto& [name, add] : others) {
    if (name.find(part) == std::string::npos) continue;
    if (const auto done = add(); !done) {
      fmt::print(stderr, "{}: {}\n", name, done.error().message);
      return 1;
    }
  }
  const auto written = write_file_atomic(out, Json{{"rows", rows}}.dump(1));
  return written ? 0 : 1;
}

}  // namespace
}  // namespace motley

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: bench_stages DATA OUT.json [PART OF A NAME]\n");
    return 2;
  }
  return motley::main_of(argv[1], argv[2], argc > 3 ? argv[3] : "");
}
