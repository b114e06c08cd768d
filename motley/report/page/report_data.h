#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "motley/base/json_forward.h"
#include "motley/base/units.h"
#include "motley/report/waits.h"
#include "motley/trace/trace.h"

namespace motley::report {

/// An instruction's pass, in a step of several micro-batches.
struct Pass {
  std::int64_t micro_batch = -1;  ///< -1: of none, or of all
  bool is_backward = false;
  bool operator==(const Pass&) const = default;
};

/// A simulated or measured step.
struct Timeline {
  std::string name;     ///< "equal split", "plan", "predicted", "measured"
  std::string caption;  ///< "48:46:46"; may be empty
  Seconds step;         ///< as in the rest of the output
  trace::Trace trace;
  /// By device and instruction; empty for a device, or all, without several micro-batches.
  std::vector<std::vector<Pass>> passes = {};
  Peers peers = {};  ///< who sends each receive and receives each send (waits.h)
};

/// The parts of a device's memory at its peak.
struct DeviceMemory {
  std::string device;
  std::optional<Bytes> limit, predicted, measured;
  std::vector<std::pair<std::string, Bytes>> parts;  ///< "parameters", ...; only those above 0
};

/// The load that an exchange of a step puts on a network link.
struct LinkLoad {
  std::string name;  ///< "a>b"
  BytesPerSecond bandwidth;
  Bytes bytes;            ///< per step
  double busy_share = 0;  ///< part of a step with exchanges on it in flight
};

/// One layer's cut and times on each device, of the first timeline that is not the equal split.
struct LayerCut {
  std::string layer;
  std::string cut;                  ///< "samples 89:37:14", "weights in 3 parts", "on a:0"
  std::vector<double> compute_s{};  ///< per step, by device
};

struct StageRow {
  std::int64_t replica = 0, stage = 0;
  std::vector<std::string> devices;
  std::int64_t operators = 0;  ///< of the graph; 0: all
  std::int64_t samples = 0, micro_batches = 1;
  std::string layers = {};  ///< "wte to h.1"; empty: unknown
  double compute_s = 0;     ///< per step, on its slowest device; 0: unknown
};

struct Neighbour {
  std::string label;
  Seconds step;
  bool fits = true;
};

/// Where a rank is, or was last seen.
struct RankRow {
  std::int64_t rank = 0;
  std::string device;
  bool is_running = false;
  std::optional<std::int64_t> step;
  std::string where;
};

/// A value that was logged by step.
struct Curve {
  std::string name;  ///< "loss"
  std::string unit;  ///< "s", or "" for plain numbers
  std::vector<std::pair<std::int64_t, double>> points;
  std::optional<double> expected;  ///< a level to compare with
};

/// Everything a page shows about a plan or a run.
struct ReportData {
  std::string title;  ///< "runs/cnn"
  std::string state;  ///< "planned", or a run's: "running", "failed", ...
  std::string verdict;
  std::vector<std::string> remarks = {};
  std::vector<std::pair<std::string, std::int64_t>> samples = {};  ///< per step, by device
  std::vector<Timeline> timelines = {};                            ///< in display order
  std::vector<DeviceMemory> memory = {};
  std::vector<LinkLoad> links = {};
  std::vector<LayerCut> layers = {};
  std::vector<StageRow> stages = {};       ///< where a replica has several
  std::vector<Neighbour> neighbours = {};  ///< fastest first, with the plan itself as "this plan"
  std::vector<RankRow> ranks = {};
  std::vector<Curve> curves = {};
  std::string command = {};  ///< to repeat it; empty: unknown
};

/// Label of the neighbour that is the plan itself.
inline constexpr const char* kThisPlan = "this plan";

/// Returns what `motley report --json` prints; pages name its numbers by place (docs/reports.md).
Json report_data_to_json(const ReportData& report_data);

/// Returns a sentence: which device waits longest for which in the last timeline.
std::string waiting_sentence(const ReportData& report_data);

}  // namespace motley::report
