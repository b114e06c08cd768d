// What does each pass of the search for plans of stages buy? Finds plans of many instances with all
// passes and without each. Usage: bench_passes DATA OUT.json [PART OF A NAME [PART OF A PASS]];
// DATA holds sailor, zorse and harp; "-": of no pass. Instances fall into two halves in turn: what
// is chosen on the first is confirmed on the second. Prints a row a pass: in each half the number
// of instances whose step is 1 % longer without it and the most that it is longer, and the CPU
// seconds that it takes.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "bench/stages_case.h"
#include "bench/stages_harp.h"
#include "bench/stages_instances.h"
#include "bench/stages_zones.h"
#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/search/stages/single_search.h"

namespace motley {
namespace {

using bench::StageInstance;

constexpr double kWorse = 1.01;  // times the step, from where on a plan is worse

Result<std::vector<StageInstance>> read_instances(const std::string& data) {
  std::vector<StageInstance> all;
  const auto add = [&](Result<StageInstance> made) -> Result<void> {
    MOTLEY_ASSIGN(StageInstance instance, std::move(made));
    all.push_back(std::move(instance));
    return {};
  };
  const auto add_all = [&](std::vector<StageInstance> more) {
    for (StageInstance& each : more) all.push_back(std::move(each));
  };
  for (const bench::SailorCase& of : bench::sailor_cases())
    MOTLEY_RETURN_IF_ERROR(
        add(bench::make_instance(of.name(), bench::sailor_files(data, of.model),
                                 bench::sailor_cluster(of.fast, of.slow), of.batch)));
  MOTLEY_RETURN_IF_ERROR(add(bench::many_instance()));
  for (const bench::ZonedCase& of : bench::zoned_cases(data))
    MOTLEY_RETURN_IF_ERROR(add(bench::make_instance(
        fmt::format("zones {} {}", of.files.model, of.name), of.files, of.cluster, of.batch)));
  MOTLEY_RETURN_IF_ERROR(add(bench::zorse_instance(data)));
  MOTLEY_ASSIGN(auto harp, bench::harp_instances(data));
  add_all(std::move(harp));
  MOTLEY_ASSIGN(auto small, bench::small_instances(data));
  add_all(std::move(small));
  add_all(bench::drawn_instances());
  return all;
}

std::string plan_text(const search::StagePlan& plan) {
  std::string text;
  for (const search::StageReplica& replica : plan.replicas) {
    text += fmt::format("{} in {}, {}:", replica.samples, replica.micro_batch,
                        search::schedule_name(replica.schedule));
    for (std::size_t s = 0; s < replica.stages.size(); ++s) {
      const search::PlannedStage& stage = replica.stages[s];
      text += fmt::format(" {}-{} on {} at {}.{}", stage.first, stage.end, stage.unit, stage.host,
                          stage.slot);
      if (search::is_interleaved(replica)) text += fmt::format(" seat {}", replica.seats[s]);
    }
    text += "; ";
  }
  return text;
}

struct Found {
  search::StageOutcome outcome;
  double cpu_seconds = 0;
  double step() const { return outcome.best ? outcome.best->price.step.value : INFINITY; }
};

Result<Found> find(const StageInstance& instance, const std::string& without) {
  search::StageQuestion question{instance.costs.get(), instance.batch};
  if (!without.empty()) question.without.push_back(without);
  Found found;
  const double start = bench::cpu_seconds();
  MOTLEY_ASSIGN(found.outcome, search::find_stage_plan(question));
  found.cpu_seconds = bench::cpu_seconds() - start;
  return found;
}

Json row_of(const StageInstance& instance, const Found& found) {
  Json runner_ups = Json::array();
  for (const search::PricedStagePlan& each : found.outcome.runner_ups)
    runner_ups.push_back(each.price.step.value);
  return Json{{"instance", instance.name},
              {"step_s", found.step()},
              {"lower_bound_s", found.outcome.lower_bound.value},
              {"plan", found.outcome.best ? plan_text(found.outcome.best->plan) : ""},
              {"runner_ups_s", runner_ups},
              {"simulated", found.outcome.simulated},
              {"programs", found.outcome.programs},
              {"shapes", found.outcome.shapes},
              {"cpu_s", found.cpu_seconds}};
}

/// Of one half of the instances.
struct Half {
  int worse = 0;
  double most = 1;  // times the step with it
};

Result<Json> weigh(const std::string& pass, const std::vector<StageInstance>& instances,
                   const std::vector<Found>& whole) {
  std::array<Half, 2> halves;
  double seconds = 0;
  std::string slowest = "-";
  for (std::size_t i = 0; i < instances.size(); ++i) {
    MOTLEY_ASSIGN(const Found found, find(instances[i], pass));
    Half& half = halves[i % 2];
    const double ratio = whole[i].outcome.best ? found.step() / whole[i].step() : 1;
    half.worse += ratio >= kWorse ? 1 : 0;
    if (ratio > std::max({halves[0].most, halves[1].most})) slowest = instances[i].name;
    half.most = std::max(half.most, ratio);
    seconds += whole[i].cpu_seconds - found.cpu_seconds;
  }
  fmt::print("{:<16} {:>6} {:>8.3f} {:>6} {:>8.3f} {:>8.2f}  {}\n", pass, halves[0].worse,
             halves[0].most, halves[1].worse, halves[1].most, seconds, slowest);
  std::fflush(stdout);
  return Json{{"pass", pass},
              {"first_worse", halves[0].worse},
              {"first_most", halves[0].most},
              {"second_worse", halves[1].worse},
              {"second_most", halves[1].most},
              {"slowest", slowest},
              {"cpu_s", seconds}};
}

Result<void> main_of(const std::string& data, const std::string& out, const std::string& part,
                     const std::string& pass_part) {
  MOTLEY_ASSIGN(std::vector<StageInstance> instances, read_instances(data));
  std::erase_if(instances, [&](const StageInstance& each) {
    return each.name.find(part) == std::string::npos;
  });
  Json rows = Json::array();
  std::vector<Found> whole;
  double seconds = 0;
  for (const StageInstance& instance : instances) {
    MOTLEY_ASSIGN(Found found, find(instance, ""));
    seconds += found.cpu_seconds;
    rows.push_back(row_of(instance, found));
    whole.push_back(std::move(found));
  }
  fmt::print("{} instances, {:.1f} CPU s with all passes; without one:\n{:<16} {:>15} {:>15}\n",
             instances.size(), seconds, "", "first half", "second half");
  fmt::print("{:<16} {:>6} {:>8} {:>6} {:>8} {:>8}  {}\n", "pass", "worse", "most", "worse", "most",
             "CPU s", "most on");
  for (const std::string_view pass : search::stage_passes()) {
    if (pass.find(pass_part) == std::string_view::npos) continue;
    MOTLEY_ASSIGN(Json row, weigh(std::string(pass), instances, whole));
    rows.push_back(std::move(row));
  }
  return write_file_atomic(out, Json{{"rows", rows}}.dump(1));
}

}  // namespace
}  // namespace motley

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: bench_passes DATA OUT.json [PART OF A NAME [PART OF A PASS]]\n");
    return 2;
  }
  const auto done =
      motley::main_of(argv[1], argv[2], argc > 3 ? argv[3] : "", argc > 4 ? argv[4] : "");
  if (!done) fmt::print(stderr, "{}\n", done.error().message);
  return done ? 0 : 1;
}
