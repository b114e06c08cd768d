#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "motley/base/json.h"
#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/run/job.h"

namespace motley::run {

/// `motley-worker profile JOB.json`: times every compute instruction of each program in situ.
struct ProfileJob {
  std::vector<std::string> programs;  ///< program files of one device each (rank 0 is run)
  WorkerDevice device;                ///< kind, threads, local index; speed is ignored: full speed
  double seconds_per_program = 0.5;   ///< time to spend on each, at least 3 repeats
};

/// `motley-worker collectives JOB.json --rank R`: times all_reduce over a range of sizes for the
/// first 2, 3, ... n ranks. Rank 0 prints.
struct CollectivesJob {
  std::string run_dir;  ///< rendezvous
  std::vector<WorkerDevice> devices;
  double timeout_s = 30;
};

/// What both print on stdout, one line of progress events before it: {"ops": [...]} and
/// {"collectives": [...]}.
struct OpTime {
  std::string key;  ///< program::cost_key
  Seconds median;
  double spread = 0;
  std::int64_t samples = 0;
};
struct CollectiveTime {
  std::string op;
  std::string backend;
  int ranks = 0;
  Bytes bytes;
  Seconds median;
  double spread = 0;
  std::int64_t samples = 0;
};

Json profile_job_to_json(const ProfileJob& job);
Result<ProfileJob> profile_job_from_json(const Json& json, const std::string& where);
Json collectives_job_to_json(const CollectivesJob& job);
Result<CollectivesJob> collectives_job_from_json(const Json& json, const std::string& where);
Json op_times_to_json(const std::vector<OpTime>& times);
Result<std::vector<OpTime>> op_times_from_json(const Json& json, const std::string& where);
Json collective_times_to_json(const std::vector<CollectiveTime>& times);
Result<std::vector<CollectiveTime>> collective_times_from_json(const Json& json,
                                                               const std::string& where);

}  // namespace motley::run
