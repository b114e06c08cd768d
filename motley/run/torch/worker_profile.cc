#include "motley/run/torch/worker_profile.h"

#include <utility>
#include <vector>

#include "motley/base/file.h"
#include "motley/base/json_fields.h"
#include "motley/program/program_text.h"
#include "motley/run/measure.h"
#include "motley/run/torch/lanes/framework_memory.h"
#include "motley/run/torch/lanes/profile_run.h"
#include "motley/run/torch/worker_session.h"

namespace motley::run {
namespace {

constexpr std::int64_t kManySteps = 1'000'000;

Result<std::vector<OpTime>> profile_file(std::size_t index, const ProfileJob& job) {
  const std::string& path = job.programs[index];
  MOTLEY_ASSIGN(const std::string text, read_file(path));
  MOTLEY_ASSIGN(const program::Program program, program::parse_program(text, path));
  const auto rank = static_cast<std::size_t>(job.ranks[index]);
  if (rank >= program.devices.size())
    return usage_error("run.job", path + ": has no device of rank " + std::to_string(rank));
  const program::DeviceProgram& device = program.devices[rank];
  ProfileRunOptions options;
  options.kind = job.device.kind;
  options.local_index = job.device.local_index;
  options.warm_up = 1;
  options.min_steps = 2;
  options.budget = Seconds(job.seconds_per_program);
  if (!job.whole_steps) return profile_program(device, options);
  options.max_steps = kManySteps;
  MOTLEY_ASSIGN(const WholeStepTimes times, time_whole_steps(device, job.device.speed, options));
  return std::vector<OpTime>{times.step, times.pause};
}

/// Returns a program's times; for a GPU also what it holds beside tensors.
Result<std::vector<OpTime>> profile_with_memory(std::size_t index, const ProfileJob& job) {
  if (job.device.kind != "cuda" || job.whole_steps) return profile_file(index, job);
  const c10::Device device(c10::DeviceType::CUDA,
                           static_cast<c10::DeviceIndex>(job.device.local_index));
  prepare_device_use(device);
  MOTLEY_ASSIGN(std::vector<OpTime> times, profile_file(index, job));
  for (OpTime& each : framework_times(read_device_use(device))) times.push_back(std::move(each));
  return times;
}

}  // namespace

Result<void> run_profile(const std::string& job_path, const Reporter& reporter) {
  MOTLEY_ASSIGN(const std::string text, read_file(job_path));
  MOTLEY_ASSIGN(const Json json, parse_json(text, job_path));
  MOTLEY_ASSIGN(ProfileJob job, fields_from_json<ProfileJob>(json, job_path));
  MOTLEY_RETURN_IF_ERROR(set_up_device(job.device));
  std::vector<OpTime> times;
  for (std::size_t i = 0; i < job.programs.size(); ++i) {
    MOTLEY_ASSIGN(const std::vector<OpTime> measured, profile_with_memory(i, job));
    times.insert(times.end(), measured.begin(), measured.end());
  }
  reporter.result(fields_to_json(OpTimes{times}));
  for (std::size_t i = 0; job.linger; i = (i + 1) % job.programs.size())
    MOTLEY_RETURN_IF_ERROR(profile_file(i, job));
  return {};
}

}  // namespace motley::run
