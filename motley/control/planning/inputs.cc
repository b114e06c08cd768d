#include "motley/control/planning/inputs.h"

#include <algorithm>
#include <utility>

#include "motley/cluster/probe.h"
#include "motley/cost/device_keys.h"
#include "motley/cost/layers/layer_graph.h"
#include "motley/graph/graph_text.h"
#include "motley/run/hosts/here.h"
#include "motley/search/layers/layer_tables.h"
#include "motley/search/price/costs.h"

namespace motley::control {
namespace {

Result<std::vector<DeviceId>> allowed_devices(const cluster::Cluster& cluster,
                                              const std::vector<std::string>& exclude) {
  std::vector<bool> excluded(cluster.devices.size(), false);
  for (const std::string& name : exclude) {
    MOTLEY_ASSIGN(const DeviceId id, cluster::find_device(cluster, name));
    excluded[id.index()] = true;
  }
  std::vector<DeviceId> devices;
  for (std::size_t i = 0; i < excluded.size(); ++i)
    if (!excluded[i]) devices.emplace_back(static_cast<std::int64_t>(i));
  if (devices.empty()) return usage_error("cli.exclude", "--exclude leaves no device");
  return devices;
}

/// Reads the model. A layer profile brings its own optimizer, unless another one is requested.
Result<void> read_model(const Question& question, Inputs& inputs) {
  inputs.model_path = question.model;
  inputs.model = question.read;
  inputs.programs = question.programs;
  inputs.layers = question.layers;
  inputs.lowering = question.lowering;
  if (inputs.layers) {
    graph::Model model{.graph = inputs.layers->layers.graph, .hash = inputs.layers->hash};
    inputs.model = std::make_shared<const graph::Model>(std::move(model));
    if (inputs.lowering.recipe == plan::Recipe())
      inputs.lowering.recipe.optimizer = inputs.layers->optimizer;
    return {};
  }
  if (!inputs.model) {
    MOTLEY_ASSIGN(graph::Model model, graph::read_model(question.model));
    inputs.model = std::make_shared<const graph::Model>(std::move(model));
  }
  if (!cost::is_layer_graph(inputs.graph())) return {};
  return usage_error("cli.layers",
                     question.model +
                         ": is the graph of a layer profile, whose layers nobody can run; plan "
                         "and simulate it with --layer-times, and to train export the model "
                         "(python -m motley.export)");
}

/// Finds the devices. A layer profile limits their kinds, and has no memory beside tensors.
Result<void> find_devices(const Question& question, Inputs& inputs) {
  MOTLEY_ASSIGN(inputs.devices, allowed_devices(inputs.cluster, question.exclude));
  if (!inputs.layers) return {};
  MOTLEY_ASSIGN(auto timed, search::find_layer_devices(*inputs.layers->profile, inputs.cluster,
                                                       inputs.devices));
  inputs.devices = std::move(timed.devices);
  inputs.most_samples = timed.most_samples;
  for (const DeviceId id : inputs.devices)
    inputs.cluster.devices[id.index()].framework = cluster::Framework{Bytes(0), 0.0};
  return {};
}

/// Freezes the model's parameters as the recipe requires.
Result<void> follow_recipe(const plan::Recipe& recipe, Inputs& inputs) {
  MOTLEY_RETURN_IF_ERROR(plan::verify_recipe(recipe, inputs.graph()));
  if (recipe.frozen.empty()) return {};
  graph::Model model = *inputs.model;
  model.graph = plan::freeze(std::move(model.graph), recipe.frozen);
  inputs.model = std::make_shared<const graph::Model>(std::move(model));
  return {};
}

}  // namespace

void tell_processor(const cluster::Cluster& cluster, cluster::Device& device) {
  if (device.kind != "cpu" || !device.model.empty()) return;
  const std::string& host = cluster.node(device.node).host;
  const bool is_here = run::is_this_machine(host);
  device.taken_for = is_here ? cluster::describe_cpu() : "of " + host;
  if (is_here && !device.quota) device.quota = cluster::core_quota();
}

Result<Inputs> read_inputs(const Question& question, Listener& listener) {
  Inputs inputs;
  MOTLEY_RETURN_IF_ERROR(read_model(question, inputs));
  MOTLEY_RETURN_IF_ERROR(follow_recipe(inputs.lowering.recipe, inputs));
  if (question.made) {
    inputs.cluster = *question.made;
  } else {
    MOTLEY_ASSIGN(inputs.cluster, cluster::read_cluster(question.cluster));
  }
  if (!question.is_whole)
    for (cluster::Device& device : inputs.cluster.devices) tell_processor(inputs.cluster, device);
  MOTLEY_RETURN_IF_ERROR(find_devices(question, inputs));
  if (!question.is_whole) cluster::part_shared_memory(inputs.cluster, inputs.devices);
  inputs.global_batch = question.global_batch;
  inputs.tf32 = question.tf32;
  inputs.commits = question.commits;
  inputs.carries = question.carries && !question.commits;
  inputs.survive = question.survive;
  inputs.lowering.updates = question.updates.value_or(
      cluster::are_identical(inputs.cluster, inputs.devices) ? plan::Updates::kNative
                                                             : plan::Updates::kPortable);
  MOTLEY_RETURN_IF_ERROR(listener.phase(Phase::kLoad, [&] {
    return graph::print_graph(inputs.graph()) + cluster::print_cluster(inputs.cluster);
  }));
  return inputs;
}

Result<void> follow_plan(const plan::Plan& plan, Inputs& inputs) {
  MOTLEY_RETURN_IF_ERROR(follow_recipe(plan.recipe, inputs));
  inputs.global_batch = plan.global_batch;
  inputs.lowering = {plan.recipe, plan.batch_norm, plan.bucket_bytes, plan.batch_norm_span,
                     plan.updates};
  inputs.tf32 = plan.tf32;
  return {};
}

std::string engine_version(const Inputs& inputs, const std::string& torch) {
  return inputs.tf32 ? torch + cost::kTf32Suffix : torch;
}

std::string profile_subject(const Inputs& inputs) {
  return search::profile_subject(inputs.model->hash, inputs.lowering);
}

}  // namespace motley::control
