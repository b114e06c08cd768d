#include "bench/stages_case.h"

#include <fmt/format.h>
#include <time.h>

namespace motley::bench {
Seconds CpuClock::steady() const { return Seconds(cpu_seconds()); }

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::string node_text(int number, const std::string& kind, int devices, const std::string& memory) {
  return fmt::format(
      "[[node]]\nname = \"n{0}\"\nhost = \"10.0.{1}.{2}\"\n[[node.device]]\nkind = \"{3}\"\n"
      "count = {4}\n{5}",
      number, number / 250, number % 250 + 1, kind, devices,
      memory.empty() ? "" : fmt::format("memory = \"{}\"\n", memory));
}

Result<PlannedCase> plan_case(const control::LayerFiles& files, const std::string& text,
                              std::int64_t batch) {
  PlannedCase planned;
  const double start = cpu_seconds();
  MOTLEY_ASSIGN(const auto cluster, cluster::parse_cluster(text, "bench"));
  MOTLEY_ASSIGN(control::StageAnswer answer,
                control::plan_stages(files, cluster, batch, CpuClock()));
  planned.cpu_seconds = cpu_seconds() - start;
  if (!answer.outcome.best) return usage_error("bench.stages", "no plan");
  MOTLEY_ASSIGN(const control::SimulatedLayers simulated,
                control::simulate_stages(files, cluster, *answer.outcome.best, *answer.costs,
                                         control::Simulated::kStep));
  planned.program = simulated.step;
  planned.outcome = std::move(answer.outcome);
  const auto find = [&](peers::StageSpace space) -> Result<search::StageOutcome> {
    control::LayerFiles own = files;
    own.may_recompute |= space == peers::StageSpace::kHarp;
    const control::FindStages in_space = [&](const search::StageQuestion& question) {
      return peers::find_restricted(space, question);
    };
    MOTLEY_ASSIGN(auto found, control::plan_stages(own, cluster, batch, CpuClock(), in_space));
    return std::move(found.outcome);
  };
  MOTLEY_ASSIGN(planned.restricted, find_restrictions(find));
  return planned;
}

}  // namespace motley::bench
