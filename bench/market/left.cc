// Time left, predicted at a loss: progress and speed come from the run's own evaluations until
// then. The lost worker's share of the speed is gone.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/market/rows.h"
#include "motley/base/statistics.h"
#include "motley/elastic/time_left.h"
#include "peers/import/transient.h"

namespace motley::bench {
namespace {

/// Evaluations are polled every 62 s: a rectangle's deviation at both ends of the time between two.
constexpr double kTimingDeviation = 62 / 2.449;  // sqrt(12 / 2)

/// Runs without losses: steps per second, and their spread.
struct Usual {
  double speed = 0, spread = 0;
};
Result<Usual> usual_of(const std::vector<peers::TransientRun>& runs) {
  std::vector<double> speeds;
  for (const auto& run : runs)
    if (run.is_undisturbed()) speeds.push_back(peers::kTransientSteps / run.duration_s);
  if (speeds.empty()) return usage_error("bench.left", "no undisturbed runs");
  const Scatter scatter = find_scatter(speeds);
  return Usual{scatter.middle, kMadToDeviation * scatter.spread()};
}

/// A run at a moment: steps done, and its speed with all machines.
struct JobState {
  double steps = 0, full_speed = 0;
};

/// Estimates the full speed from the run's own last evaluation and from other runs, each weighed by
/// its precision. `losses`: times before `now`; each took one of `all` workers.
JobState job_state_at(const std::vector<peers::Progress>& evaluations,
                      const std::vector<double>& losses, double all, double now,
                      const Usual& usual) {
  const auto worker_seconds = [&](double until) {  // in units of all workers
    double sum = until;
    for (const double loss : losses) sum -= std::max(0.0, until - loss) / all;
    return sum;
  };
  peers::Progress last;
  for (const peers::Progress& each : evaluations)
    if (each.at_s <= now) last = each;
  JobState job_state{0, usual.speed};
  if (last.at_s > 0) {
    const double own = last.steps / worker_seconds(last.at_s);
    const double own_spread = kTimingDeviation / last.at_s;
    const double of_own =
        usual.spread * usual.spread / (usual.spread * usual.spread + own_spread * own_spread);
    job_state.full_speed += of_own * (own - usual.speed);
  }
  job_state.steps = std::max(last.steps, job_state.full_speed * worker_seconds(now));
  return job_state;
}

Result<void> add_rows(const std::string& folder, const std::string& cluster, MarketRows& made,
                      std::vector<double>& errors) {
  MOTLEY_ASSIGN(const auto runs, peers::read_transient_runs(folder, cluster));
  MOTLEY_ASSIGN(const Usual usual, usual_of(runs));
  const double delay = peers::start_delay_s(runs);
  for (const auto& run : runs) {
    if (run.is_undisturbed() || run.is_stopped) continue;
    MOTLEY_ASSIGN(const auto evaluations, peers::read_progress(folder, cluster, run));
    std::vector<double> losses;
    for (std::size_t i = 0; i < run.uptime_s.size(); ++i)
      if (run.is_revoked[i]) losses.push_back(std::max(0.0, run.uptime_s[i] - delay));
    std::sort(losses.begin(), losses.end());
    const auto all = static_cast<double>(run.uptime_s.size());
    for (std::size_t l = 0; l < losses.size(); ++l) {
      const std::vector<double> before(losses.begin(),
                                       losses.begin() + static_cast<std::ptrdiff_t>(l));
      const JobState job_state = job_state_at(evaluations, before, all, losses[l], usual);
      const std::vector<elastic::MachineAhead> there(run.uptime_s.size() - l - 1);
      MOTLEY_ASSIGN(const elastic::LeftToDo left,
                    elastic::estimate_left(there, peers::kTransientSteps - job_state.steps,
                                           [&](const std::vector<std::size_t>& present) {
                                             return job_state.full_speed *
                                                    static_cast<double>(present.size()) / all;
                                           }));
      const double measured = run.duration_s - losses[l];
      const bool is_last = l + 1 == losses.size();
      // The measurement then includes another loss, half a minute or a minute later.
      if (is_last) errors.push_back(std::abs(left.time.value / measured - 1));
      made.rows.push_back(
          {{"kind", "left"},
           {"case", fmt::format("{} {} run {} loss {}", cluster, run.zone, run.number, l + 1)},
           {"policy", "motley"},
           {"predicted_s", left.time.value},
           {"measured_s", measured},
           {"is_last_loss", is_last}});
    }
  }
  return {};
}

}  // namespace

MarketResult left_rows(const std::string& data) {
  MarketRows made;
  made.text = fmt::format(
      "time left, said at a run's last loss, against what it took (known within 62 s; the set of "
      "the published 0.83 % is held out)\n{:<8} {:>6} {:>8} {:>8} {:>8}  {}\n",
      "cluster", "losses", "mean %", "median %", "worst %", "to reach");
  for (const char* cluster : {"2-spot", "4-spot"}) {
    std::vector<double> errors;
    MOTLEY_RETURN_IF_ERROR(add_rows(data + "/transient", cluster, made, errors));
    double sum = 0;
    for (const double error : errors) sum += error;
    made.text += fmt::format("{:<8} {:>6} {:>8.2f} {:>8.2f} {:>8.2f}  5\n", cluster, errors.size(),
                             100 * sum / static_cast<double>(errors.size()), 100 * median(errors),
                             100 * *std::max_element(errors.begin(), errors.end()));
  }
  return made;
}

}  // namespace motley::bench
