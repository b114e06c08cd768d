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

/// What is asked for: the files and choices that a planning begins with.
struct Question {
  std::string model;  ///< model file
  /// What is in it, where that is known, and programs of it that others made; null: neither is.
  std::shared_ptr<const graph::Model> read;
  std::shared_ptr<search::EqualPrograms> programs;
  std::shared_ptr<const search::LayerModel> layers;  ///< in place of the file: of another tool
  std::string cluster;                               ///< cluster file (TOML)
  std::optional<cluster::Cluster> made;              ///< in place of the file
  bool is_whole = false;                 ///< that one, as other inputs had it: nothing is added
  std::vector<std::string> exclude;      ///< names of devices to leave out
  std::int64_t global_batch = 1;         ///< samples a step
  synth::LowerOptions lowering;          ///< recipe, batch norm, buckets; not its updates
  std::optional<plan::Updates> updates;  ///< none: portable where devices are not alike
  bool tf32 = false;                     ///< GPUs may round float32 products to TF32
  bool commits = false;                  ///< steps are to happen on all devices or on none
  int survive = 0;                       ///< so many devices may be lost at once (mirroring.h)
};

/// Model, cluster and choices of one planning, read and checked. What later steps return may refer
/// to it, so it must outlive them and stay where it is.
struct Inputs {
  std::string model_path;
  std::shared_ptr<const graph::Model> model;
  std::shared_ptr<search::EqualPrograms> programs;   ///< of the model; null: not shared with others
  std::shared_ptr<const search::LayerModel> layers;  ///< of which the model is; null: of none
  cluster::Cluster cluster;
  std::vector<DeviceId> devices;             ///< the cluster's devices less the excluded ones
  std::optional<std::int64_t> most_samples;  ///< of a pass, where layers are timed up to there
  std::int64_t global_batch = 0;
  synth::LowerOptions lowering;
  bool tf32 = false;
  bool commits = false;  ///< plans are lowered to programs with commits (synth/state/commit.h)
  int survive = 0;       ///< and with mirrors, so that so many devices may be lost (mirroring.h)

  const graph::Graph& graph() const { return model->graph; }
};

/// Reads the files. Usage errors name file and line, or the device that is not there.
Result<Inputs> read_inputs(const Question& question, Listener& listener);

/// Of a CPU of which the file says no more than "cpu": unlike processors must not share a profile.
void tell_processor(const cluster::Cluster& cluster, cluster::Device& device);

/// Gives the inputs the global batch, recipe, batch norm and buckets of a plan that was made
/// elsewhere, and whether GPUs may use TF32. Usage errors where the recipe is not of this model.
Result<void> follow_plan(const plan::Plan& plan, Inputs& inputs);

/// How the engine is named in keys of times: its version, with "+tf32" where GPUs may use that, so
/// that such times never price a run without.
std::string engine_version(const Inputs& inputs, const std::string& torch);

/// What the inputs are called in a profile store: model and how it is lowered.
std::string profile_subject(const Inputs& inputs);

}  // namespace motley::control
