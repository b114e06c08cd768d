// Measures what `motley run` sends to start a plan's ranks, if each node were a machine of its own
// and the run were led from another, and what the ranks need of it, for bench/scale.py:
//   bench_start_driver MODEL CLUSTER PLAN FOLDER
// RankFiles gives ranks their files, as in run/launch/remote_job.cc; FOLDER keeps the program and
// the files to send meanwhile. Prints JSON: ranks, hosts, start_bytes and its parts (program_bytes,
// weight_bytes, model_bytes, job_bytes); needed_bytes: each rank's own program and its sharded
// weights, and the model file once.
#include <fmt/format.h>

#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/cluster/cluster.h"
#include "motley/graph/model_file.h"
#include "motley/plan/plan.h"
#include "motley/program/program_text.h"
#include "motley/run/checkpoints/rank_files.h"
#include "motley/run/job.h"
#include "motley/synth/lower.h"

namespace {

using namespace motley;

struct Sums {
  std::int64_t programs = 0, weights = 0, models = 0, jobs = 0, needed = 0;
};

std::int64_t size_of(const std::string& path) {
  return static_cast<std::int64_t>(std::filesystem::file_size(path));
}

run::Job make_job(const cluster::Cluster& cluster, const plan::Plan& plan, const std::string& model,
                  const std::string& folder) {
  run::Job job;
  job.run_dir = folder;
  job.program_path = folder + "/program.txt";
  job.model_path = model;
  job.resume = false;
  for (const plan::Member& member : plan::members(plan)) {
    const cluster::Device& device = cluster.device(member.device);
    job.devices.push_back({.name = device.name,
                           .kind = device.kind,
                           .host = cluster.node(device.node).host,
                           .local_index = device.local_index});
  }
  return job;
}

/// Counts its program, and its sharded buffers that are in the model file.
std::int64_t needed_bytes(const program::DeviceProgram& device) {
  program::Program own;
  own.devices = {device};
  auto bytes = static_cast<std::int64_t>(program::print_program(own).size());
  for (const program::Buffer& buffer : device.buffers)
    if (buffer.part && (buffer.kind == program::BufferKind::kParameter ||
                        buffer.kind == program::BufferKind::kModelBuffer))
      bytes += buffer.bytes().value;
  return bytes;
}

/// Adds everything sent to one host except the data.
Result<void> add_host(const run::RankFiles& files, const std::string& host, const run::Job& job,
                      Sums& sums) {
  const std::string sent = job.run_dir + "/sent.safetensors";
  const bool has_model = job.devices[0].host == host;
  for (std::size_t i = 0; i < job.devices.size(); ++i) {
    if (job.devices[i].host != host) continue;
    const Rank rank(static_cast<std::int32_t>(i));
    sums.programs += static_cast<std::int64_t>(files.program(rank).size());
    if (has_model) continue;
    MOTLEY_RETURN_IF_ERROR(files.write_weights(rank, sent));
    sums.weights += size_of(sent);
  }
  MOTLEY_RETURN_IF_ERROR(files.write_model(sent));
  sums.models += has_model ? size_of(job.model_path) : size_of(sent);
  sums.jobs += static_cast<std::int64_t>(run::job_to_json(job).dump().size());
  return {};
}

Result<Json> count(const std::vector<std::string>& arguments) {
  const std::string& folder = arguments[3];
  MOTLEY_ASSIGN(const graph::Model model, graph::read_model(arguments[0]));
  MOTLEY_ASSIGN(const cluster::Cluster cluster, cluster::read_cluster(arguments[1]));
  MOTLEY_ASSIGN(const std::string text, read_file(arguments[2]));
  MOTLEY_ASSIGN(const plan::Plan plan, plan::parse_plan(text, arguments[2], cluster));
  MOTLEY_ASSIGN(program::Program program, synth::lower(model.graph, plan, cluster));
  const run::Job job = make_job(cluster, plan, arguments[0], folder);
  MOTLEY_RETURN_IF_ERROR(write_file_atomic(job.program_path, program::print_program(program)));
  MOTLEY_ASSIGN(const run::RankFiles files, run::RankFiles::open(job, std::move(program)));
  std::set<std::string> hosts;
  for (const run::WorkerDevice& device : job.devices) hosts.insert(device.host);
  Sums sums;
  for (const std::string& host : hosts) MOTLEY_RETURN_IF_ERROR(add_host(files, host, job, sums));
  sums.needed = size_of(job.model_path);
  for (const program::DeviceProgram& device : program.devices) sums.needed += needed_bytes(device);
  return Json{{"ranks", job.devices.size()},
              {"hosts", hosts.size()},
              {"start_bytes", sums.programs + sums.weights + sums.models + sums.jobs},
              {"program_bytes", sums.programs},
              {"weight_bytes", sums.weights},
              {"model_bytes", sums.models},
              {"job_bytes", sums.jobs},
              {"needed_bytes", sums.needed}};
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() != 4) {
    fmt::print(stderr, "usage: bench_start_driver MODEL CLUSTER PLAN FOLDER\n");
    return 2;
  }
  const auto counted = count(arguments);
  if (!counted) {
    fmt::print(stderr, "{}\n", counted.error().message);
    return 1;
  }
  fmt::print("{}\n", counted->dump());
  return 0;
}
