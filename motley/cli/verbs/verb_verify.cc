#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include "motley/base/file.h"
#include "motley/cli/options/run_options.h"
#include "motley/control/claim.h"
#include "motley/control/planning/last_bits.h"
#include "motley/control/verify/comparing.h"
#include "motley/control/verify/eager.h"

namespace motley::cli {
namespace {

constexpr std::int64_t kSteps = 20;
/// Limits for float32 sums in another order.
constexpr double kLossLimit = 1e-4;
constexpr double kParameterLimit = 1e-5;
/// A tensor may differ by this multiple of the effect of the weights' last bits.
constexpr double kAmplified = 10;
/// Most changes of last bits: a bfloat16 of Muon's moves by 0.4 %, or not at all.
constexpr int kChanges = 4;

struct VerifyOptions {
  RunOptions run;
  std::string against = "one", source;
};

std::vector<Flag> verify_flags(VerifyOptions& options) {
  std::vector<Flag> flags = training_flags(options.run);
  flags.insert(
      flags.end(),
      {{"--plan", &options.run.plan.file, "plan file (default: make a plan first)"},
       {"--against", &options.against,
        "one: the same plan on one device; eager: PyTorch's own loop over the user's module",
        kShown},
       {"--source", &options.source,
        "with eager: FILE.py:FUNCTION or hf:FOLDER (default: as it was exported)"}});
  return flags;
}

/// The comparison of the plan's result with a reference, and the allowed differences.
struct Yardstick {
  std::string name;
  control::Difference difference;
  control::Difference allowed = {};  // beyond the limits above

  double loss_limit() const { return std::max(kLossLimit, allowed.loss); }
  double limit(const std::string& tensor) const {
    const auto more = allowed.tensors.find(tensor);
    return std::max(kParameterLimit, more != allowed.tensors.end() ? more->second : 0.0);
  }
  /// The tensor nearest to its limit, or furthest beyond.
  std::pair<std::string, double> worst() const {
    std::pair<std::string, double> found;
    for (const auto& [tensor, apart] : difference.tensors)
      if (found.first.empty() || apart * limit(found.first) > found.second * limit(tensor))
        found = {tensor, apart};
    return found;
  }
  bool passes() const {
    const auto [tensor, apart] = worst();
    return difference.has_all_steps && difference.loss <= loss_limit() && apart <= limit(tensor);
  }
  /// Allows multiples of the difference between trainings that differ only in rounding.
  void allow(const control::Difference& rounding) {
    allowed.loss = std::max(allowed.loss, kAmplified * rounding.loss);
    for (const auto& [tensor, apart] : rounding.tensors)
      allowed.tensors[tensor] = std::max(allowed.tensors[tensor], kAmplified * apart);
  }
};

struct TrainedIn {
  control::PreparedRun prepared;
  control::Trained trained;
};
Result<TrainedIn> train_in(const control::RunDirectory& directory, const control::Inputs& inputs,
                           const control::Planned& planned, control::TrainChoices choices,
                           const Context& context) {
  choices.resume = false;
  choices.run_dir = directory.path;
  TrainedIn done;
  MOTLEY_ASSIGN(done.prepared, control::prepare_run(inputs, planned, nullptr, choices));
  MOTLEY_ASSIGN(const control::Measured measured, train(done.prepared, context));
  done.trained = {measured.losses, directory.model()};
  return done;
}

/// If the comparison fails, allows for rounding by means of numbered `disturbed` trainings.
template <typename Disturbed>
Result<void> allow_for_rounding(Yardstick& found, const control::Trained& theirs,
                                const Context& context, const Disturbed& disturbed) {
  if (found.passes() || !found.difference.has_all_steps) return {};
  context.note("how much rounding alone decides: again with every weight's last bit changed");
  for (int changes = 0; changes < kChanges && !found.passes(); ++changes) {
    MOTLEY_ASSIGN(const control::Trained other, disturbed(changes));
    MOTLEY_ASSIGN(const auto moved, control::compare_trained(other, theirs));
    found.allow(moved);
  }
  return {};
}

Result<Yardstick> compare_with_one_device(const TrainedIn& ours, const std::string& directory,
                                          const Context& context) {
  context.note(fmt::format("{} steps on one device", ours.prepared.choices.steps));
  MOTLEY_ASSIGN(const auto whole,
                control::make_reference(*ours.prepared.inputs, ours.prepared.planned->plan));
  const control::RunDirectory one{directory + "/one"};
  MOTLEY_ASSIGN(const TrainedIn theirs,
                train_in(one, whole.inputs, whole.planned, ours.prepared.choices, context));
  Yardstick found{"one device", {}};
  MOTLEY_ASSIGN(found.difference, control::compare_trained(ours.trained, theirs.trained));
  const auto disturbed = [&](int changes) -> Result<control::Trained> {
    const control::RunDirectory again{directory + "/one-disturbed"};
    MOTLEY_ASSIGN(const control::Inputs inputs,
                  control::change_last_bits(whole.inputs, directory + "/disturbed.motley",
                                            static_cast<std::uint64_t>(changes)));
    MOTLEY_ASSIGN(const TrainedIn done,
                  train_in(again, inputs, whole.planned, ours.prepared.choices, context));
    return done.trained;
  };
  MOTLEY_RETURN_IF_ERROR(allow_for_rounding(found, theirs.trained, context, disturbed));
  return found;
}

Result<Yardstick> compare_with_eager(const TrainedIn& ours, const VerifyOptions& options,
                                     const std::string& directory, const Context& context) {
  const std::string recorded = ours.prepared.inputs->model->source;
  const control::EagerQuestion question{options.source.empty() ? recorded : options.source,
                                        find_python(options.run.python, context),
                                        directory + "/eager"};
  if (question.source.empty())
    return usage_error("cli.source", ours.prepared.inputs->model_path +
                                         ": does not say what it was exported from; give --source "
                                         "FILE.py:FUNCTION");
  context.note(fmt::format("{} steps of PyTorch's own loop ({})", ours.prepared.choices.steps,
                           question.source));
  Yardstick found{"PyTorch's own loop", {}};
  MOTLEY_RETURN_IF_ERROR(control::write_batches(ours.prepared, question));
  MOTLEY_ASSIGN(const control::Trained theirs, train_eagerly(ours.prepared, question));
  MOTLEY_ASSIGN(found.difference, control::compare_trained(ours.trained, theirs));
  MOTLEY_RETURN_IF_ERROR(allow_for_rounding(found, theirs, context, [&](int changes) {
    return train_eagerly(ours.prepared, question, changes);
  }));
  return found;
}

Result<int> verify_plan(const VerifyOptions& options, const Context& context) {
  if (options.against != "one" && options.against != "eager")
    return usage_error("cli.against",
                       fmt::format("--against: found '{}', wanted one or eager", options.against));
  RunOptions run = options.run;
  if (run.training.steps == 0 && run.training.epochs == 0) run.training.steps = kSteps;
  MOTLEY_ASSIGN(const control::TrainChoices choices,
                make_train_choices(run, find_python(run.python, context)));
  const std::string directory =
      std::filesystem::absolute(choices.run_dir.empty()
                                    ? default_run_dir(run.plan.planning.model) + "-verify"
                                    : choices.run_dir)
          .string();
  MOTLEY_RETURN_IF_ERROR(data::check_readable(choices.data));
  MOTLEY_RETURN_IF_ERROR(control::check_not_in_use({directory}));
  MOTLEY_ASSIGN(const auto chosen,
                choose_plan(options.run.plan, control::Prices::kIfThere, context));
  // The compared results must be those of this run.
  MOTLEY_ASSIGN(const control::Claim claim, control::Claim::take({directory}));
  const std::size_t devices = plan::members(chosen->planned.plan).size();
  context.note(fmt::format("{} on {} devices",
                           choices.steps > 0 ? fmt::format("{} steps", choices.steps)
                                             : fmt::format("{} epochs", choices.epochs),
                           devices));
  MOTLEY_ASSIGN(const TrainedIn ours, train_in({directory + "/split"}, chosen->inputs,
                                               chosen->planned, choices, context));
  MOTLEY_ASSIGN(const Yardstick found, options.against == "one"
                                           ? compare_with_one_device(ours, directory, context)
                                           : compare_with_eager(ours, options, directory, context));
  const auto [tensor, apart] = found.worst();
  const std::string advice =
      found.passes()
          ? ""
          : "float32 takes decisions (ReLU, max pooling) about values that are 0 but for rounding; "
            "one of them can part two right runs at once. With fewer --steps fewer have been "
            "taken\n";
  const std::int64_t steps = ours.prepared.choices.steps;
  context.result(
      fmt::format("{}: after {} steps on {} devices the loss differs by {:.2g} (limit {:.2g}), the "
                  "parameters by {:.2g} (limit {:.2g}, worst '{}'), relative to {}\n{}",
                  found.passes() ? "pass" : "FAIL", steps, devices, found.difference.loss,
                  found.loss_limit(), apart, found.limit(tensor), tensor, found.name, advice),
      {{"against", options.against},
       {"max_loss_diff", found.difference.loss},
       {"max_param_diff", apart},
       {"loss_limit", found.loss_limit()},
       {"param_limit", found.limit(tensor)},
       {"worst_tensor", tensor},
       {"steps", steps},
       {"pass", found.passes()}});
  return found.passes() ? kDone : kCheckFailed;
}

}  // namespace

Verb verify_verb() {
  return led(make_verb("verify", "compare a training with one device, or with PyTorch's own loop",
                       verify_flags, verify_plan));
}

}  // namespace motley::cli
