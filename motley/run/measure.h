#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "motley/base/json_forward.h"
#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/program/program.h"
#include "motley/run/job.h"
#include "motley/trace/trace.h"

namespace motley::run {

/// `motley-worker profile JOB.json`: times every compute instruction of each program in situ, and
/// prints the times as one line.
struct ProfileJob {
  std::vector<std::string> programs;  ///< program files
  std::vector<int> ranks;             ///< by program: the rank that is run, alone
  WorkerDevice device;                ///< kind, threads, local index, processor
  bool whole_steps = false;           ///< time steps at the device's speed, not operators at full
  double seconds_per_program = 0.5;   ///< time to spend on each, at least 2 repeats
  bool linger = false;  ///< afterwards go on working until killed, to be beside others
};

/// Time of all instructions with one cost key; `profile` prints them on stdout: {"ops": [...]}.
struct OpTime {
  std::string key;  ///< program::cost_key
  Seconds median;
  double spread = 0;         ///< median absolute deviation / median
  std::int64_t samples = 0;  ///< measured executions
  Bytes scratch;             ///< memory needed beside the results
};

/// Times of the compute instructions of one device of a trace, which ran `program`: per instruction
/// the median over steps; instructions of equal key give the mean of theirs, so that the sum over
/// the program stays. Sorted by key, without scratch.
std::vector<OpTime> time_operators(const program::DeviceProgram& program, const trace::Trace& trace,
                                   int device);

/// What verb `collectives` (which takes a Job without program and data) reports in its event.
struct CollectiveTime {
  std::string op;
  std::string backend;
  int ranks = 0;
  Bytes bytes;
  Seconds median;
  double spread = 0;
  std::int64_t samples = 0;
};

/// A rank's compute alone and beside exchanges of all ranks, in the same event.
struct OverlapTime {
  int rank = 0;
  Seconds alone, together;
  Seconds overlap;  ///< of `together`: an exchange was under way
};

/// What the event of verb `collectives` holds.
struct MeasuredGroup {
  std::string backend;  ///< of the group of all ranks
  std::vector<CollectiveTime> collectives;
  std::vector<OverlapTime> overlaps;
};

Json profile_job_to_json(const ProfileJob& job);
Result<ProfileJob> profile_job_from_json(const Json& json, const std::string& where);
Json op_times_to_json(const std::vector<OpTime>& times);
Result<std::vector<OpTime>> op_times_from_json(const Json& json, const std::string& where);
/// {"collectives": [...], "backend": "gloo", "overlaps": [...]}
Json measured_group_to_json(const MeasuredGroup& times);
Result<MeasuredGroup> measured_group_from_json(const Json& json, const std::string& where);

}  // namespace motley::run
