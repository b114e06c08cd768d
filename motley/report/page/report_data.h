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

/// What an instruction is for, of a step in several micro-batches.
struct Pass {
  std::int64_t micro_batch = -1;  ///< -1: of none, or of all
  bool is_backward = false;
  bool operator==(const Pass&) const = default;
};

/// A step on a clock, simulated or measured.
struct Timeline {
  std::string name;     ///< "equal split", "plan", "predicted", "measured"
  std::string caption;  ///< "48:46:46"; may be empty
  Seconds step;         ///< as the rest of the output has it
  trace::Trace trace;
  /// By device and instruction; nothing for devices, or of all, without several micro-batches.
  std::vector<std::vector<Pass>> passes = {};
  Peers peers = {};  ///< who sends what is received, and gets what is sent (waits.h)
};

/// What a device's memory is made of when it holds most.
struct DeviceMemory {
  std::string device;
  std::optional<Bytes> limit, predicted, measured;
  std::vector<std::pair<std::string, Bytes>> parts;  ///< "parameters", ...; those above 0
};

/// What an exchange of a step puts on a link of the network.
struct LinkLoad {
  std::string name;  ///< "a>b"
  BytesPerSecond bandwidth;
  Bytes bytes;            ///< a step
  double busy_share = 0;  ///< of a step: exchanges that cross it are under way
};

/// What one layer takes on each device of the first timeline that is not the equal split.
struct LayerCut {
  std::string layer;
  std::string cut;                  ///< "samples 89:37:14", "weights in 3 parts", "on a:0"
  std::vector<double> compute_s{};  ///< a step, by device
};

/// A region of a replica.
struct StageRow {
  std::int64_t replica = 0, stage = 0;
  std::vector<std::string> devices;
  std::int64_t operators = 0;  ///< of the graph; 0: all
  std::int64_t samples = 0, micro_batches = 1;
  std::string layers = {};  ///< "wte to h.1"; empty: not known
  double compute_s = 0;     ///< a step, of its device that computes longest; 0: not known
};

/// Another plan near this one.
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

/// Something that was logged by steps.
struct Curve {
  std::string name;  ///< "loss"
  std::string unit;  ///< "s", or "" for plain numbers
  std::vector<std::pair<std::int64_t, double>> points;
  std::optional<double> expected;  ///< a level to compare with
};

/// All that a page tells of a plan or a run.
struct ReportData {
  std::string title;  ///< "runs/cnn"
  std::string state;  ///< "planned", or a run's: "running", "failed", ...
  std::string verdict;
  std::vector<std::string> remarks = {};
  std::vector<std::pair<std::string, std::int64_t>> samples = {};  ///< a step, by device
  std::vector<Timeline> timelines = {};                            ///< in the order to show them
  std::vector<DeviceMemory> memory = {};
  std::vector<LinkLoad> links = {};
  std::vector<LayerCut> layers = {};
  std::vector<StageRow> stages = {};       ///< where a replica has several
  std::vector<Neighbour> neighbours = {};  ///< cheapest first, the plan among them as "this plan"
  std::vector<RankRow> ranks = {};
  std::vector<Curve> curves = {};
  std::string command = {};  ///< to repeat it; empty: not known
};

/// What a neighbour is called that is the plan itself.
inline constexpr const char* kThisPlan = "this plan";

/// As `motley report --json` prints it; pages refer to these numbers by their place
/// (docs/reports.md).
Json report_data_to_json(const ReportData& report_data);

/// Who waits longest for whom in the last timeline, as a sentence.
std::string waiting_sentence(const ReportData& report_data);

}  // namespace motley::report
