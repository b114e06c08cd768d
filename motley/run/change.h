#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "motley/base/json_forward.h"
#include "motley/base/result.h"
#include "motley/program/program.h"
#include "motley/run/evaluation.h"
#include "motley/run/job.h"

namespace motley::run {

/// A running job goes on by another program. Workers that are told so prepare it beside training:
/// they join its groups, look its operators up and place its tensors; when all have, they go on by
/// it after the same step. What is whole on a device stays where it is; the rest is moved by a
/// program of its own (synth/move.h).
struct Change {
  int number = 0;  ///< from 1; the job's own program is 0
  program::Program program;
  std::vector<WorkerDevice> devices;  ///< of the program, by its ranks; some of the job's
  std::vector<program::Program> evaluations;
  program::Program move;  ///< of the devices of both programs
};

/// Those of a program, by its ranks, of a job's; a device that the job has not is left out.
std::vector<WorkerDevice> devices_of(const program::Program& program,
                                     const std::vector<WorkerDevice>& known);

/// What one worker is told of a change: a line of JSON on its standard input.
struct ChangeOrder {
  int number = 0;
  std::vector<WorkerDevice> devices;
  program::Program program;  ///< with the instructions of the worker's own device
  std::vector<program::Program> evaluations;
  program::Program move;  ///< the same
};
/// For the device of that name, which the program need not use.
std::string print_order(const Change& change, const std::string& device);
Result<ChangeOrder> parse_order(const std::string& line);

/// Where a training stands, for ranks that go on by another program.
struct TrainingPoint {
  std::int64_t step = 0;         ///< steps done
  double elapsed_s = 0;          ///< since the first of them of this job began
  std::int64_t saved_step = -1;  ///< of the latest checkpoint of this job
  std::string saved_path;        ///< "": there is none
  std::optional<Best> best;
  bool operator==(const TrainingPoint&) const = default;
};
Json point_to_json(const TrainingPoint& point);
Result<TrainingPoint> point_from_json(const Json& json, const std::string& where);

}  // namespace motley::run
