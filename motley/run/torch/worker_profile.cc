#include "motley/run/torch/worker_profile.h"

#include "motley/base/file.h"
#include "motley/program/program_text.h"
#include "motley/run/measure.h"
#include "motley/run/torch/profile_run.h"
#include "motley/run/torch/worker_session.h"

namespace motley::run {
namespace {

Result<std::vector<OperatorTime>> profile_file(const std::string& path, const ProfileJob& job) {
  MOTLEY_ASSIGN(const std::string text, read_file(path));
  MOTLEY_ASSIGN(const program::Program program, program::parse_program(text, path));
  if (program.devices.empty()) return usage_error("run.job", path + ": has no device");
  ProfileOptions options;
  options.kind = job.device.kind;
  options.local_index = job.device.local_index;
  options.min_steps = 3;
  options.budget = Seconds(job.seconds_per_program);
  return profile_program(program.devices[0], options);
}

}  // namespace

Result<void> run_profile(const std::string& job_path, const Reporter& reporter) {
  MOTLEY_ASSIGN(const std::string text, read_file(job_path));
  MOTLEY_ASSIGN(const Json json, parse_json(text, job_path));
  MOTLEY_ASSIGN(const ProfileJob job, profile_job_from_json(json, job_path));
  MOTLEY_RETURN_IF_ERROR(set_up_device(job.device));
  std::vector<OpTime> times;
  for (const std::string& path : job.programs) {
    MOTLEY_ASSIGN(const std::vector<OperatorTime> measured, profile_file(path, job));
    for (const OperatorTime& time : measured)
      times.push_back({time.key, time.median, time.spread, time.samples});
  }
  reporter.result(op_times_to_json(times));
  return {};
}

}  // namespace motley::run
