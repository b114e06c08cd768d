#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <span>

#include "motley/base/file.h"
#include "motley/base/safetensors.h"
#include "motley/base/text.h"
#include "motley/cli/prediction.h"
#include "motley/cli/training.h"
#include "motley/report/report.h"

namespace motley::cli {
namespace {

Result<data::DataSource> data_source(const RunOptions& options) {
  if (options.data.empty())
    return usage_error("cli.data",
                       "no training data: give --data FILE (.npz, .safetensors or .bin)");
  data::DataSource source;
  source.path = options.data;
  source.seq = options.seq;
  if (options.tokens != "u16" && options.tokens != "u32")
    return usage_error("cli.tokens",
                       fmt::format("--tokens: found '{}', wanted u16 or u32", options.tokens));
  source.token_width = options.tokens == "u16" ? 2 : 4;
  return source;
}

Result<std::optional<std::uint64_t>> parse_shuffle(const std::string& text) {
  if (text == "none") return std::optional<std::uint64_t>{};
  const auto seed = find_integer(text);
  if (!seed || *seed < 0)
    return usage_error("cli.shuffle",
                       fmt::format("--shuffle: found '{}', wanted none or a seed from 0 on", text));
  return std::optional<std::uint64_t>(static_cast<std::uint64_t>(*seed));
}

/// What `run` and `verify` need beside the plan.
Result<Training> make_training(const RunOptions& options) {
  Training training;
  MOTLEY_ASSIGN(training.data, data_source(options));
  MOTLEY_ASSIGN(training.shuffle, parse_shuffle(options.shuffle));
  if (options.steps < 1) return usage_error("cli.steps", "how long? give --steps N with N >= 1");
  if (options.resume != "auto" && options.resume != "never")
    return usage_error("cli.resume",
                       fmt::format("--resume: found '{}', wanted auto or never", options.resume));
  if (!(options.timeout > 0))
    return usage_error("cli.timeout", "--timeout: wanted a number of seconds above 0");
  if (options.enforce != "worker" && options.enforce != "speeds" && options.enforce != "outside")
    return usage_error(
        "cli.enforce",
        fmt::format("--enforce: found '{}', wanted worker, speeds or outside", options.enforce));
  if (!cluster::is_transport(options.transport))
    return usage_error("cli.transport", fmt::format("--transport: found '{}', wanted auto or gloo",
                                                    options.transport));
  training.enforce_speed = options.enforce != "outside";
  training.enforce_links = options.enforce == "worker";
  training.steps = options.steps;
  training.seed = options.planning.seed;
  training.resume = options.resume == "auto";
  training.checkpoint_every = options.checkpoint_every;
  training.timeout_s = options.timeout;
  training.transport = options.transport;
  training.trace_steps = options.trace_steps;
  return training;
}

std::string default_run_dir(const std::string& model_path) {
  return "runs/" + std::filesystem::path(model_path).stem().string();
}

/// Plan of a run: from --plan, or made now.
struct RunPlan {
  Inputs inputs;
  plan::Plan plan;
  std::shared_ptr<const search::Costs> costs;
  std::string text;  ///< the outcome's table, when planned now
};

Result<RunPlan> find_run_plan(const RunOptions& options, const Context& context) {
  RunPlan run;
  PlanningOptions planning = options.planning;
  if (options.plan.empty()) {
    MOTLEY_ASSIGN(Planned planned, make_plan(planning, context));
    if (!planned.outcome.plan) return tl::make_unexpected(infeasible_error(planned.outcome));
    run.text = report::print_outcome(planned.outcome, planned.inputs.cluster);
    run.plan = *planned.outcome.plan;
    run.inputs = std::move(planned.inputs);
    run.costs = planned.costs;
    return run;
  }
  if (planning.global_batch == 0) planning.global_batch = 1;  // the plan file has its own
  MOTLEY_ASSIGN(run.inputs, read_inputs(planning, context));
  MOTLEY_ASSIGN(run.plan, read_plan(options.plan, run.inputs));
  run.inputs.global_batch = run.plan.global_batch;
  run.inputs.lowering = {run.plan.optimizer, run.plan.batch_norm, run.plan.bucket_bytes};
  // A plan can be run without profiles; then there is no prediction to show.
  planning.profile = "never";
  if (auto costs = find_costs(run.inputs, planning, context)) run.costs = *costs;
  return run;
}

std::string summary_text(const TrainingResult& result, const Training& training) {
  std::string text = fmt::format("{} steps, loss {:.5f} -> {:.5f}, {} a step", result.losses.size(),
                                 result.losses.empty() ? 0.0 : result.losses.front(),
                                 result.losses.empty() ? 0.0 : result.losses.back(),
                                 format_seconds(Seconds(result.step_s_median)));
  if (training.predicted_step && result.step_s_median > 0)
    text += fmt::format(" (plan {}, {:+.1f}%)", format_seconds(*training.predicted_step),
                        100 * (result.step_s_median / training.predicted_step->value - 1));
  text += "\n";
  const std::vector<plan::Member> members = plan::members(training.plan);
  for (std::size_t r = 0; r < result.busy.size(); ++r) {
    text += fmt::format("  {:<10} {:>5} samples  busy {:>3.0f}%  peak {}\n",
                        training.cluster->device(members[r].device).name, members[r].samples,
                        100 * result.busy[r], format_bytes(Bytes(result.peak_bytes[r])));
  }
  text += fmt::format("checkpoint {}\n", result.checkpoint);
  if (!result.stopped) text += fmt::format("model      {}/model.safetensors\n", training.run_dir);
  return text;
}

/// Reduced difference of two tensors: ||a-b|| / ||b||, or 0 when both are zero. Integers: any
/// difference is 1.
template <typename T>
double relative_difference(std::span<const std::byte> a, std::span<const std::byte> b) {
  const auto* x = reinterpret_cast<const T*>(a.data());
  const auto* y = reinterpret_cast<const T*>(b.data());
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size() / sizeof(T); ++i) {
    const double d = static_cast<double>(x[i]) - static_cast<double>(y[i]);
    difference += d * d;
    norm += static_cast<double>(y[i]) * static_cast<double>(y[i]);
  }
  if (difference == 0) return 0;
  return norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
}

std::vector<float> widen_bf16(std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / 2);
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t half;
    std::memcpy(&half, bytes.data() + 2 * i, 2);
    const std::uint32_t bits = static_cast<std::uint32_t>(half) << 16;
    std::memcpy(&values[i], &bits, 4);
  }
  return values;
}

double tensor_difference(const TensorView& a, const TensorView& b) {
  switch (a.dtype) {
    case DType::kF32:
      return relative_difference<float>(a.bytes, b.bytes);
    case DType::kF64:
      return relative_difference<double>(a.bytes, b.bytes);
    case DType::kBF16: {
      const auto x = widen_bf16(a.bytes), y = widen_bf16(b.bytes);
      return relative_difference<float>(std::as_bytes(std::span(x)), std::as_bytes(std::span(y)));
    }
    default:
      return std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin()) ? 0 : 1;
  }
}

struct Difference {
  double worst = 0;
  std::string tensor;
};

Result<Difference> compare_models(const std::string& ours, const std::string& reference) {
  MOTLEY_ASSIGN(const Safetensors a, Safetensors::open(ours));
  MOTLEY_ASSIGN(const Safetensors b, Safetensors::open(reference));
  Difference difference;
  for (const auto& [name, tensor] : b.tensors()) {
    const auto it = a.tensors().find(name);
    if (it == a.tensors().end() || it->second.shape != tensor.shape ||
        it->second.dtype != tensor.dtype)
      return runtime_error("verify.tensors", fmt::format("{}: tensor '{}' differs in shape or is "
                                                         "missing from {}",
                                                         reference, name, ours));
    const double d = tensor_difference(it->second, tensor);
    if (difference.tensor.empty() || d > difference.worst) difference = {d, name};
  }
  return difference;
}

/// The whole batch on one whole CPU core of this machine: what the split must equal.
cluster::Cluster reference_cluster() {
  cluster::Cluster cluster;
  cluster.name = "reference";
  cluster.nodes.push_back({.name = "reference"});
  cluster.devices.push_back({.node = NodeId(0), .name = "reference:0", .kind = "cpu"});
  return cluster;
}

Result<TrainingResult> train_reference(const Training& training, const plan::Plan& plan,
                                       const cluster::Cluster& cluster, const std::string& run_dir,
                                       const Context& context) {
  Training reference = training;
  reference.cluster = &cluster;
  reference.run_dir = run_dir;
  reference.predicted_step.reset();
  reference.plan = plan;
  reference.plan.cluster_hash = cluster::cluster_hash(cluster);
  reference.plan.replicas = plan::make_replicas({DeviceId(0)}, {plan.global_batch});
  return train(reference, context);
}

/// Limits of `verify`: float32 sums taken in another order.
constexpr double kLossLimit = 1e-4;
constexpr double kParameterLimit = 1e-5;

}  // namespace

Result<int> run_verb(const RunOptions& options, const Context& context) {
  MOTLEY_ASSIGN(Training training, make_training(options));
  MOTLEY_ASSIGN(const std::optional<run::RankPlace> place, rank_place(context));
  if (place && place->rank > 0) return join_job(*place, context);
  MOTLEY_ASSIGN(const RunPlan run, find_run_plan(options, context));
  if (!run.text.empty()) context.note(run.text);
  training.model = &run.inputs.model;
  training.model_path = run.inputs.model_path;
  training.cluster = &run.inputs.cluster;
  training.plan = run.plan;
  training.place = place;
  training.run_dir =
      options.run_dir.empty() ? default_run_dir(run.inputs.model_path) : options.run_dir;
  std::optional<Prediction> prediction;
  if (run.costs) {
    MOTLEY_ASSIGN(prediction, find_prediction(run.inputs, *run.costs, run.plan, 3, context));
  }
  if (prediction) {
    training.predicted_step = Seconds(prediction->step.value);
    training.predicted_trace = trace::print_trace(prediction->trace);
  }
  MOTLEY_ASSIGN(const TrainingResult result, train(training, context));
  if (context.stop_after == "synth") return kDone;
  const Json object = training_to_json(result, training);
  MOTLEY_RETURN_IF_ERROR(write_file_atomic(training.run_dir + "/summary.json", object.dump(2)));
  if (prediction && training.enforce_links && !result.stopped)
    if (const auto kept = remember(run.inputs, *prediction, Seconds(result.step_s_median),
                                   result.peak_bytes, profile_path(options.planning, context));
        !kept)
      context.note("warning: the prediction's error is not kept: " + kept.error().message);
  context.result(summary_text(result, training), object);
  return result.stopped ? kStopped : kDone;
}

Result<int> verify_verb(const RunOptions& options, const Context& context) {
  MOTLEY_ASSIGN(Training training, make_training(options));
  MOTLEY_ASSIGN(const RunPlan run, find_run_plan(options, context));
  training.model = &run.inputs.model;
  training.model_path = run.inputs.model_path;
  training.cluster = &run.inputs.cluster;
  training.plan = run.plan;
  training.resume = false;
  const std::string directory = options.run_dir.empty()
                                    ? default_run_dir(run.inputs.model_path) + "-verify"
                                    : options.run_dir;
  training.run_dir = directory + "/split";
  const std::size_t devices = plan::members(run.plan).size();
  context.note(fmt::format("{} steps on {} devices", training.steps, devices));
  MOTLEY_ASSIGN(const TrainingResult ours, train(training, context));
  context.note(fmt::format("{} steps on one device", training.steps));
  const cluster::Cluster one = reference_cluster();
  MOTLEY_ASSIGN(const TrainingResult reference,
                train_reference(training, run.plan, one, directory + "/one", context));
  double loss_difference = 0;
  for (std::size_t i = 0; i < std::min(ours.losses.size(), reference.losses.size()); ++i)
    loss_difference = std::max(loss_difference, std::abs(ours.losses[i] - reference.losses[i]) /
                                                    std::max(1e-12, std::abs(reference.losses[i])));
  MOTLEY_ASSIGN(const Difference parameters, compare_models(training.run_dir + "/model.safetensors",
                                                            directory + "/one/model.safetensors"));
  const bool pass = ours.losses.size() == reference.losses.size() &&
                    loss_difference <= kLossLimit && parameters.worst <= kParameterLimit;
  const std::string advice =
      pass
          ? ""
          : "float32 takes decisions (ReLU, max pooling) about values that are 0 but for rounding; "
            "one of them can part two right runs at once. With --steps 5 fewer have been taken\n";
  context.result(
      fmt::format("{}: after {} steps on {} devices the loss differs by {:.2g} (limit {:.0g}), the "
                  "parameters by {:.2g} (limit {:.0g}, worst '{}'), relative to one device\n{}",
                  pass ? "pass" : "FAIL", training.steps, devices, loss_difference, kLossLimit,
                  parameters.worst, kParameterLimit, parameters.tensor, advice),
      {{"max_loss_diff", loss_difference},
       {"max_param_diff", parameters.worst},
       {"worst_tensor", parameters.tensor},
       {"steps", training.steps},
       {"pass", pass}});
  return pass ? kDone : kCheckFailed;
}

}  // namespace motley::cli
