// Test tool: lowers a model for devices with the given shares and prints the program.
//   lower_tool MODEL 5,3,1 [local] [BUCKET_BYTES]
//   lower_tool MODEL 5,3,1 sharded SEED [kept] [micro=N [own]] [again=SEED] [BUCKET_BYTES]
//   operators split at random,
//                                                                         by these shares
//   lower_tool MODEL 5,3,1 spread [kept] [micro=N [own]] [again=SEED] [BUCKET_BYTES]   samples
//   split, as a
//                                                                         sharding
//   lower_tool MODEL 5,3,1 stages=SEED [own] [BUCKET_BYTES] [plan]              replicas cut into
//                                                                         regions at random; or
//                                                                         their plan
// recipe=JSON: {"optimizer": ..., "recipe": ...} as in a plan.
// kept: each device keeps a part of every parameter. micro=N: in so many micro-batches; the shares
// are samples of all of them. turns=N: of these, so many take turns. own: each has its own
// statistics of batch norm. again=SEED: half of the operators of the forward pass, or with 0 all,
// are done again in the backward pass.
// survive=N: with mirrors, so that any N devices may be lost, and with a commit.
// regather=SEED: half of the parameters, or with 0 all, are gathered again for each pass.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "motley/base/json.h"
#include "motley/base/random.h"
#include "motley/base/text.h"
#include "motley/graph/model_file.h"
#include "motley/program/program_text.h"
#include "motley/search/region/random_sharding.h"
#include "motley/search/region/random_stages.h"
#include "motley/synth/lower.h"
#include "motley/synth/ranks/lower_sharded.h"
#include "motley/synth/ranks/sample_sharding.h"
#include "motley/synth/state/commit.h"
#include "motley/synth/state/mirrored.h"

namespace {

using namespace motley;

/// What stands behind "recipe=": a plan's "optimizer" and "recipe". Without it SGD.
Result<plan::Recipe> find_recipe(const std::vector<std::string>& arguments) {
  plan::Recipe recipe;
  recipe.optimizer.lr = 0.1;
  for (const std::string& argument : arguments) {
    if (!argument.starts_with("recipe=")) continue;
    MOTLEY_ASSIGN(const Json json, parse_json(argument.substr(7), "recipe"));
    MOTLEY_ASSIGN(recipe, plan::recipe_from_json(json.at("recipe"), "recipe"));
    MOTLEY_ASSIGN(recipe.optimizer, plan::optimizer_from_json(json.at("optimizer"), "optimizer"));
  }
  return recipe;
}

/// What stands behind "survive=" adds mirrors and a commit.
Result<std::string> print_whole(program::Program program, plan::Updates updates,
                                const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    if (!argument.starts_with("survive=")) continue;
    synth::MirrorOptions options;
    options.survive = static_cast<int>(find_integer(argument.substr(8)).value_or(1));
    MOTLEY_ASSIGN(const synth::Mirrors mirrors, synth::choose_mirrors(program, options));
    MOTLEY_ASSIGN(program, synth::with_mirrors(std::move(program), mirrors, updates));
    MOTLEY_ASSIGN(program, synth::with_commit(std::move(program)));
  }
  return program::print_program(program);
}

Result<std::string> lower_sharding(const graph::Graph& graph,
                                   const std::vector<std::string>& arguments) {
  synth::Sharding sharding;
  for (const std::string_view share : split(arguments[1], ',')) {
    sharding.devices.push_back(fmt::format("a:{}", sharding.devices.size()));
    const std::int64_t samples = find_integer(share).value_or(0);
    sharding.shares.push_back(static_cast<double>(samples));
    sharding.batch += samples;
  }
  const bool is_random = arguments[2] == "sharded";
  for (const std::string& argument : arguments)
    if (argument.starts_with("micro="))
      sharding.micro_batches = find_integer(argument.substr(6)).value_or(1);
    else if (argument.starts_with("turns="))
      sharding.turns = find_integer(argument.substr(6)).value_or(1);
  sharding.batch /= sharding.micro_batches;
  if (is_random) {
    const std::int64_t seed = find_integer(arguments[3]).value_or(0);
    search::draw_sharding(graph, static_cast<std::uint64_t>(seed), sharding);
  } else {
    synth::spread_samples(graph, sharding);
  }
  for (const std::string& argument : arguments) {
    if (!argument.starts_with("again=")) continue;
    SplitMix64 random(static_cast<std::uint64_t>(find_integer(argument.substr(6)).value_or(0)));
    for (std::size_t i = 0; i < graph.ops.size(); ++i)
      if (argument == "again=0" || random.below(2) == 0)
        plan::append(sharding.recomputes, static_cast<std::int64_t>(i));
  }
  synth::LowerOptions options;
  MOTLEY_ASSIGN(options.recipe, find_recipe(arguments));
  for (std::size_t i = is_random ? 4 : 3; i < arguments.size(); ++i) {
    if (arguments[i] == "own") options.batch_norm_span = plan::BatchNormSpan::kMicroBatch;
    if (arguments[i] == "kept") synth::keep_parameters_in_parts(graph, sharding);
    if (const auto bytes = find_integer(arguments[i])) options.bucket_bytes = Bytes(*bytes);
    if (!arguments[i].starts_with("regather=")) continue;
    SplitMix64 random(static_cast<std::uint64_t>(find_integer(arguments[i].substr(9)).value_or(0)));
    for (const ValueId id : values_with_role(graph, graph::ValueRole::kParameter))
      if (arguments[i] == "regather=0" || random.below(2) == 0) sharding.gathered_again.insert(id);
  }
  MOTLEY_ASSIGN(program::Program program, synth::lower_sharded(graph, sharding, options));
  return print_whole(std::move(program), options.updates, arguments);
}

Result<std::string> lower_model(const std::vector<std::string>& arguments) {
  MOTLEY_ASSIGN(const graph::Model model, graph::read_model(arguments[0]));
  plan::Plan plan;
  MOTLEY_ASSIGN(plan.recipe, find_recipe(arguments));
  const graph::Graph graph = plan::freeze(model.graph, plan.recipe.frozen);
  if (arguments.size() > 2 &&
      (arguments[2] == "spread" || (arguments[2] == "sharded" && arguments.size() > 3)))
    return lower_sharding(graph, arguments);
  cluster::Cluster cluster;
  cluster.name = "test";
  cluster.nodes.push_back({"a"});
  plan.model_hash = model.hash;
  std::vector<DeviceId> devices;
  std::vector<std::int64_t> samples;
  for (const std::string_view share : split(arguments[1], ',')) {
    cluster::Device device;
    device.node = NodeId(0);
    device.name = fmt::format("a:{}", devices.size());
    device.kind = "cpu";
    device.index = static_cast<int>(devices.size());
    cluster.devices.push_back(device);
    devices.push_back(DeviceId(static_cast<std::int64_t>(devices.size())));
    samples.push_back(find_integer(share).value_or(0));
    plan.global_batch += samples.back();
  }
  plan.replicas = plan::make_replicas(devices, samples);
  for (std::size_t i = 2; i < arguments.size(); ++i) {
    if (arguments[i] == "local") plan.batch_norm = plan::BatchNormMode::kLocal;
    if (const auto bytes = find_integer(arguments[i])) plan.bucket_bytes = Bytes(*bytes);
    if (arguments[i] == "own") plan.batch_norm_span = plan::BatchNormSpan::kMicroBatch;
    if (!arguments[i].starts_with("stages=")) continue;
    const search::StageRange range{&cluster, devices, plan.global_batch, 1, plan.batch_norm_span};
    search::DrawnStages drawn = search::draw_stages(
        graph, range, static_cast<std::uint64_t>(find_integer(arguments[i].substr(7)).value_or(0)));
    plan.replicas = std::move(drawn.replicas);
    plan.owners = std::move(drawn.owners);
  }
  plan.cluster_hash = cluster::cluster_hash(cluster);
  MOTLEY_RETURN_IF_ERROR(plan::verify_plan(plan, plan.model_hash, cluster));
  if (std::find(arguments.begin(), arguments.end(), "plan") != arguments.end())
    return plan::print_plan(plan, cluster);
  MOTLEY_ASSIGN(program::Program program, synth::lower(graph, plan, cluster));
  return print_whole(std::move(program), plan.updates, arguments);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() < 2) {
    fmt::print(stderr,
               "usage: lower_tool MODEL SAMPLES,SAMPLES,... [local] [BUCKET_BYTES]\n"
               "       lower_tool MODEL SHARE,SHARE,... sharded SEED [kept] [micro=N [own]] "
               "[again=SEED] [regather=SEED] [BUCKET_BYTES]\n"
               "       lower_tool MODEL SHARE,SHARE,... spread [kept] [micro=N [own]] [again=SEED] "
               "[regather=SEED] [BUCKET_BYTES]\n");
    return 2;
  }
  const auto text = lower_model(arguments);
  if (!text) {
    fmt::print(stderr, "{}: {}\n", text.error().code, text.error().message);
    return 1;
  }
  fmt::print("{}", *text);
  return 0;
}
