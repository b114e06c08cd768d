// Clusters of asynchronous workers and parameter servers: saturation, distance, revoked machines.
#include "peers/import/transient.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "bench/accuracy/row.h"
#include "motley/base/statistics.h"
#include "motley/elastic/server_queue.h"
#include "peers/import/cm_dare.h"
#include "peers/steps/drag.h"
#include "peers/steps/server_fit.h"

namespace motley::bench {
namespace {

double mean_duration(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

struct Cluster {
  std::string path, gpu;
  std::int64_t workers = 0;
};

/// The common start of all rows of cluster speed: single workers, and one curve of a cluster.
struct Fitted {
  peers::ServerFit server;
  std::vector<double> residuals;        ///< of the curve's points, each left out of the fit
  std::map<std::string, Seconds> step;  ///< of one worker, by kind
};

Result<double> mean_speed(const std::string& folder, const std::string& cluster) {
  MOTLEY_ASSIGN(const std::vector<double> durations,
                peers::read_transient_durations(folder, cluster));
  return peers::kTransientSteps / mean_duration(durations);
}

Result<Fitted> fit(const std::string& data) {
  Fitted fitted;
  MOTLEY_ASSIGN(const std::vector<peers::SpeedPoint> curve,
                peers::read_cm_dare_curve(data + "/cm-dare", "p100", "res32"));
  MOTLEY_ASSIGN(fitted.server, peers::fit_server(curve));
  for (std::size_t i = 0; i < curve.size(); ++i) {
    std::vector<peers::SpeedPoint> others = curve;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
    MOTLEY_ASSIGN(const peers::ServerFit inner, peers::fit_server(others));
    MOTLEY_ASSIGN(const elastic::ClusterSpeed speed,
                  elastic::estimate_cluster_speed({{curve[i].workers, inner.step}}, inner.service));
    fitted.residuals.push_back(curve[i].steps_per_second / speed.steps_per_second - 1);
  }
  for (const auto& [gpu, cluster] : {std::pair{"K80", "k80_on_demand/k80-demand"},
                                     {"P100", "p100_v100_spot/p100"},
                                     {"V100", "p100_v100_spot/v100"}}) {
    MOTLEY_ASSIGN(const double speed, mean_speed(data + "/transient", cluster));
    fitted.step[gpu] = Seconds(1 / speed);
  }
  return fitted;
}

Result<std::vector<Case>> speed_cases(const std::string& folder, const Fitted& fitted,
                                      const std::vector<Cluster>& clusters, std::int64_t servers) {
  std::vector<Case> cases;
  for (const Cluster& cluster : clusters) {
    MOTLEY_ASSIGN(const double measured, mean_speed(folder, cluster.path));
    MOTLEY_ASSIGN(const elastic::ClusterSpeed speed,
                  elastic::estimate_cluster_speed({{cluster.workers, fitted.step.at(cluster.gpu)}},
                                                  fitted.server.service, servers));
    cases.push_back({cost::conformal_interval(speed.steps_per_second, fitted.residuals), measured});
  }
  return cases;
}

std::vector<Cluster> one_server_clusters() {
  std::vector<Cluster> clusters = {{"k80_on_demand/2-demand", "K80", 2},
                                   {"k80_on_demand/4-demand", "K80", 4},
                                   {"k80_on_demand/8-demand", "K80", 8},
                                   {"p100_v100_spot/4p100", "P100", 4},
                                   {"p100_v100_spot/4v100", "V100", 4}};
  for (std::int64_t n = 2; n <= 8; ++n)
    clusters.push_back({fmt::format("experiment_1ps_vs_2ps/1ps{}v", n), "V100", n});
  return clusters;
}

std::vector<Cluster> two_server_clusters() {
  std::vector<Cluster> clusters;
  for (const auto& [letter, gpu] : {std::pair{'v', "V100"}, {'k', "K80"}})
    for (std::int64_t n = 2; n <= 8; ++n)
      clusters.push_back({fmt::format("experiment_1ps_vs_2ps/2ps{}{}", n, letter), gpu, n});
  return clusters;
}

/// Predicts four workers, `remote` of them far from the server. A remote worker's step is longer by
/// `delay`, for any device: the messages' round trips.
Result<double> split_speed(const Fitted& fitted, const std::string& gpu, std::int64_t remote,
                           Seconds delay) {
  const Seconds step = fitted.step.at(gpu);
  MOTLEY_ASSIGN(const elastic::ClusterSpeed speed,
                elastic::estimate_cluster_speed({{4 - remote, step}, {remote, step + delay}},
                                                fitted.server.service));
  return speed.steps_per_second;
}

/// Fits the delay to the speed with one remote worker among four K80, by bisection.
Result<Seconds> fit_delay(const std::string& folder, const Fitted& fitted) {
  MOTLEY_ASSIGN(const double measured, mean_speed(folder, "experiment_cross_region/3e1c"));
  double low = 0, high = 10;
  while (high - low > 1e-6) {
    const double middle = (low + high) / 2;
    MOTLEY_ASSIGN(const double speed, split_speed(fitted, "K80", 1, Seconds(middle)));
    (speed > measured ? low : high) = middle;
  }
  return Seconds(low);
}

Result<Row> cross_region_row(const std::string& folder, const Fitted& fitted) {
  MOTLEY_ASSIGN(const Seconds delay, fit_delay(folder, fitted));
  Row row{"transient: two regions",
          "speed",
          "delay of a remote worker fitted on 3 + 1 K80; predicted 2 + 2 K80, 3 + 1 and 2 + 2 P100",
          "",
          0.1,
          {}};
  for (const auto& [path, gpu, remote] :
       {std::tuple{"2e2c", "K80", 2}, {"3e1c-p100", "P100", 1}, {"2e2c-p100", "P100", 2}}) {
    MOTLEY_ASSIGN(const double measured,
                  mean_speed(folder, fmt::format("experiment_cross_region/{}", path)));
    MOTLEY_ASSIGN(const double speed, split_speed(fitted, gpu, remote, delay));
    row.cases.push_back({cost::conformal_interval(speed, fitted.residuals), measured});
  }
  return row;
}

/// Runs of one size: the undisturbed ones give a worker's speed, over all zones and in each.
struct Calibration {
  double duration_s = 0;               ///< median of the undisturbed runs
  std::map<std::string, double> drag;  ///< by zone: duration / duration_s
  double delay_s = 0;
};

Calibration calibrate(const std::vector<peers::TransientRun>& runs) {
  Calibration calibration{0, {}, peers::start_delay_s(runs)};
  std::vector<double> durations;
  for (const auto& run : runs)
    if (run.is_undisturbed()) durations.push_back(run.duration_s);
  calibration.duration_s = median(durations);
  std::map<std::string, std::vector<double>> ratios;
  for (const auto& run : runs)
    if (run.is_undisturbed()) ratios[run.zone].push_back(run.duration_s / calibration.duration_s);
  for (const auto& [zone, of_zone] : ratios) calibration.drag[zone] = peers::estimate_drag(of_zone);
  return calibration;
}

/// Predicts a run: each present worker (`presences_of`) has its share of the undisturbed speed.
Result<double> predict(const peers::TransientRun& run, const Calibration& calibration) {
  const auto drag = calibration.drag.find(run.zone);
  const double duration =
      calibration.duration_s * (drag == calibration.drag.end() ? 1 : drag->second);
  const auto speed = [&](const std::vector<std::size_t>& present) {
    return peers::kTransientSteps / duration * static_cast<double>(present.size()) /
           static_cast<double>(run.uptime_s.size());
  };
  MOTLEY_ASSIGN(const Seconds time, elastic::replay(peers::presences_of(run, calibration.delay_s),
                                                    peers::kTransientSteps, speed));
  return time.value;
}

Result<Row> replay_row(const std::string& folder, const std::string& cluster,
                       const std::string& published) {
  MOTLEY_ASSIGN(const std::vector<peers::TransientRun> runs,
                peers::read_transient_runs(folder, cluster));
  const Calibration calibration = calibrate(runs);
  std::vector<double> residuals;  // of the undisturbed runs
  for (const auto& run : runs) {
    if (!run.is_undisturbed()) continue;
    MOTLEY_ASSIGN(const double time, predict(run, calibration));
    residuals.push_back(run.duration_s / time - 1);
  }
  Row row{"transient: " + cluster + ", revoked",
          "time",
          "speed and zones' drags from the undisturbed runs, replayed with the revocations of each "
          "run that lost a worker (a run stopped by hand is left out)",
          published,
          0.01,
          {}};
  for (const auto& run : runs) {
    if (run.is_undisturbed() || run.is_stopped) continue;
    MOTLEY_ASSIGN(const double time, predict(run, calibration));
    row.cases.push_back({cost::conformal_interval(time, residuals), run.duration_s});
  }
  return row;
}

}  // namespace

Rows transient_rows(const std::string& data) {
  const std::string folder = data + "/transient";
  MOTLEY_ASSIGN(const Fitted fitted, fit(data));
  std::vector<Row> rows;
  MOTLEY_ASSIGN(std::vector<Case> one, speed_cases(folder, fitted, one_server_clusters(), 1));
  rows.push_back(
      {"transient: one server", "speed",
       "single workers, and the server's time from the curve of 1 to 8 P100 of cm-dare; "
       "predicted 12 clusters; the variance of the service was chosen with these errors in view",
       "6.4 % saturating law, 50 % sum of the workers", 0.05, std::move(one)});
  MOTLEY_ASSIGN(std::vector<Case> two, speed_cases(folder, fitted, two_server_clusters(), 2));
  rows.push_back({"transient: two servers", "speed",
                  "as one server, its time halved; predicted 14 clusters", "", 0.05,
                  std::move(two)});
  MOTLEY_ASSIGN(rows.emplace_back(), cross_region_row(folder, fitted));
  MOTLEY_ASSIGN(rows.emplace_back(),
                replay_row(folder, "2-spot", "1.1 % replay, 37 % without revocations"));
  MOTLEY_ASSIGN(rows.emplace_back(),
                replay_row(folder, "4-spot", "0.6 % replay, 16 % without revocations"));
  return rows;
}

}  // namespace motley::bench
