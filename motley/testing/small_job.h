#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "motley/run/job.h"
#include "motley/synth/noise/gradient_squares.h"
#include "motley/synth/ranks/lower_evaluation.h"
#include "motley/synth/ranks/lower_sharded.h"
#include "motley/synth/ranks/sample_sharding.h"
#include "motley/synth/state/carried.h"
#include "motley/synth/state/commit.h"
#include "motley/testing/direct_training.h"

namespace motley::run {

/// How devices share a step of the small model.
struct SmallSplit {
  std::vector<std::int64_t> samples;      ///< per step, by rank
  std::vector<std::string> devices = {};  ///< by rank; none: a:0, a:1, ...
  bool in_parts = false;                  ///< each parameter is sharded over all
  bool commits = false;                   ///< a stopped step can be finished or undone
  bool counts_squares = false;            ///< of gradients
  std::optional<double> clip_norm = {};   ///< of all gradients
  double momentum = DirectTraining::kMomentum;
  Bytes bucket_bytes{4 << 20};
  plan::Carried carried = {};
};

struct SmallPrograms {
  program::Program training;
  std::vector<program::Program> evaluations;  ///< of four samples, and of the last three of eleven
};

inline program::Program made(Result<program::Program> program) {
  EXPECT_TRUE(program) << program.error().message;
  return program ? std::move(*program) : program::Program();
}

inline SmallPrograms lower_small(const SmallModel& model, const SmallSplit& split) {
  synth::Sharding sharding;
  sharding.devices = split.devices;
  for (std::size_t rank = sharding.devices.size(); rank < split.samples.size(); ++rank)
    sharding.devices.push_back("a:" + std::to_string(rank));
  sharding.shares.assign(split.samples.begin(), split.samples.end());
  sharding.batch = std::accumulate(split.samples.begin(), split.samples.end(), std::int64_t{0});
  synth::spread_samples(model.graph, sharding);
  if (split.in_parts) synth::keep_parameters_in_parts(model.graph, sharding);
  plan::Plan plan;
  plan.model_hash = hash_hex(graph::print_graph(model.graph));
  plan.global_batch = sharding.batch;
  std::vector<DeviceId> devices;
  for (std::size_t rank = 0; rank < split.samples.size(); ++rank)
    devices.emplace_back(static_cast<std::int64_t>(rank));
  plan.replicas = plan::make_replicas(devices, split.samples);
  plan.recipe.optimizer.lr = DirectTraining::kRate;
  plan.recipe.optimizer.momentum = split.momentum;
  plan.recipe.clip_norm = split.clip_norm;
  synth::LowerOptions options;
  options.recipe = plan.recipe;
  options.bucket_bytes = split.bucket_bytes;
  SmallPrograms programs;
  programs.training = synth::with_carried(
      made(synth::lower_sharded(model.graph, sharding, options)), split.carried);
  if (split.counts_squares)
    programs.training = made(synth::with_gradient_squares(std::move(programs.training), plan));
  if (split.commits) programs.training = made(synth::with_commit(std::move(programs.training)));
  programs.training.model_hash = plan.model_hash;
  for (const std::int64_t samples : {4, 3})
    programs.evaluations.push_back(
        made(synth::lower_evaluation({model.graph, model.evaluation}, {plan, sharding}, samples)));
  return programs;
}

/// Makes a job of `steps` steps without evaluations, with model and data in `folder`.
inline Job small_job(const std::string& folder, const SmallPrograms& programs, std::int64_t steps) {
  Job job;
  job.run_dir = folder + "/run";
  job.model_path = folder + "/model.motley";
  job.data.path = folder + "/data.safetensors";
  job.steps = steps;
  job.trace_steps = 0;
  for (const program::DeviceProgram& each : programs.training.devices)
    job.devices.push_back({.name = each.device, .kind = "cpu"});
  return job;
}

/// Evaluates all samples after each `every` steps.
inline EvaluationJob small_evaluation(const std::string& folder, std::int64_t every) {
  EvaluationJob evaluation;
  evaluation.data.path = folder + "/data.safetensors";
  evaluation.samples = SmallModel::kSamples;
  evaluation.every = every;
  evaluation.programs = {"whole", "rest"};
  evaluation.outputs = {"activity"};
  return evaluation;
}

}  // namespace motley::run
