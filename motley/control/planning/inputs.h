#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/cluster/cluster.h"
#include "motley/control/listener.h"
#include "motley/graph/model_file.h"
#include "motley/plan/plan.h"
#include "motley/search/layers/layer_plan.h"
#include "motley/search/price/equal_programs.h"
#include "motley/synth/lower.h"

namespace motley::control {

/// The files and choices that planning begins with.
struct Question {
  std::string model;
  /// The file's contents if already read, and shared programs of the model; null: neither exists.
  std::shared_ptr<const graph::Model> read;
  std::shared_ptr<search::EqualPrograms> programs;
  std::shared_ptr<const search::LayerModel> layers;  ///< another tool's, instead of the file
  std::string cluster;
  std::optional<cluster::Cluster> made;  ///< instead of the file
  bool is_whole = false;                 ///< `made` is complete: nothing is added
  std::vector<std::string> exclude;
  std::int64_t global_batch = 1;
  synth::LowerOptions lowering;          ///< recipe, batch norm, buckets; not its updates
  std::optional<plan::Updates> updates;  ///< none: portable if devices differ in kind
  bool tf32 = false;                     ///< GPUs may round float32 products to TF32
  bool commits = false;                  ///< steps must complete on all devices or on none
  bool carries = true;                   ///< exchanges may end in the next step
  int survive = 0;  ///< losses at once that the plan must survive (mirroring.h)
};

/// The checked inputs of a planning. Must outlive later results, which refer to it, and not move.
struct Inputs {
  std::string model_path;
  std::shared_ptr<const graph::Model> model;
  std::shared_ptr<search::EqualPrograms> programs;   ///< of the model; null: not shared
  std::shared_ptr<const search::LayerModel> layers;  ///< source of the model; null: a model file
  cluster::Cluster cluster;
  std::vector<DeviceId> devices;             ///< the cluster's devices without the excluded ones
  std::optional<std::int64_t> most_samples;  ///< per pass, if layers are timed only up to there
  std::int64_t global_batch = 0;
  synth::LowerOptions lowering;
  bool tf32 = false;
  bool commits = false;  ///< programs have commits (synth/state/commit.h)
  bool carries = true;   ///< programs may carry exchanges (synth/state/carried.h)
  int survive = 0;       ///< losses at once that mirrors protect against (mirroring.h)

  const graph::Graph& graph() const { return model->graph; }
};

/// Reads the files. Usage errors name file and line, or the missing device.
Result<Inputs> read_inputs(const Question& question, Listener& listener);

/// Names the processor of a plain "cpu": different processors must not share a profile.
void tell_processor(const cluster::Cluster& cluster, cluster::Device& device);

/// Copies global batch, recipe, batch norm, buckets and TF32 from a plan. Usage error: the recipe
/// does not fit the model.
Result<void> follow_plan(const plan::Plan& plan, Inputs& inputs);

/// Returns the engine in keys of times: its version, with "+tf32" if GPUs may use TF32, so that
/// such times never price a run without it.
std::string engine_version(const Inputs& inputs, const std::string& torch);

/// Returns the inputs' name in a profile store: the model and how it is lowered.
std::string profile_subject(const Inputs& inputs);

}  // namespace motley::control
