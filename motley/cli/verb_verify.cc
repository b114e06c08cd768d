#include <fmt/format.h>

#include "motley/base/file.h"
#include "motley/cli/run_options.h"
#include "motley/control/comparing.h"

namespace motley::cli {
namespace {

/// Float32 sums taken in another order.
constexpr double kLossLimit = 1e-4;
constexpr double kParameterLimit = 1e-5;

std::vector<Flag> verify_flags(RunOptions& options) {
  options.steps = 20;
  return training_flags(options);
}

/// Trains anew in a directory; nothing was predicted.
Result<control::Measured> train_in(const control::RunDirectory& directory,
                                   const control::Inputs& inputs, const control::Planned& planned,
                                   control::TrainChoices choices, const Context& context) {
  choices.resume = control::TrainChoices::Resume::kNever;
  choices.run_dir = directory.path;
  MOTLEY_ASSIGN(const auto prepared, control::prepare_run(inputs, planned, nullptr, choices));
  return train(prepared, context);
}

Result<int> verify_plan(const RunOptions& options, const Context& context) {
  MOTLEY_ASSIGN(const control::TrainChoices choices, make_train_choices(options));
  MOTLEY_RETURN_IF_ERROR(MappedFile::open(choices.data.path));  // before anything is measured
  MOTLEY_ASSIGN(const auto chosen, choose_plan(options.plan, control::Prices::kIfThere, context));
  const std::string directory = options.run_dir.empty()
                                    ? default_run_dir(chosen->inputs.model_path) + "-verify"
                                    : options.run_dir;
  const control::RunDirectory split{directory + "/split"}, one{directory + "/one"};
  const std::size_t devices = plan::members(chosen->planned.plan).size();
  context.note(fmt::format("{} steps on {} devices", choices.steps, devices));
  MOTLEY_ASSIGN(const auto ours,
                train_in(split, chosen->inputs, chosen->planned, choices, context));
  context.note(fmt::format("{} steps on one device", choices.steps));
  MOTLEY_ASSIGN(const auto whole, control::make_reference(chosen->inputs, chosen->planned.plan));
  MOTLEY_ASSIGN(const auto theirs, train_in(one, whole.inputs, whole.planned, choices, context));
  MOTLEY_ASSIGN(const auto difference, control::compare_runs(ours, split, theirs, one));
  const bool pass = difference.has_all_steps && difference.loss <= kLossLimit &&
                    difference.parameters <= kParameterLimit;
  const std::string advice =
      pass
          ? ""
          : "float32 takes decisions (ReLU, max pooling) about values that are 0 but for rounding; "
            "one of them can part two right runs at once. With --steps 5 fewer have been taken\n";
  context.result(
      fmt::format("{}: after {} steps on {} devices the loss differs by {:.2g} (limit {:.0g}), the "
                  "parameters by {:.2g} (limit {:.0g}, worst '{}'), relative to one device\n{}",
                  pass ? "pass" : "FAIL", choices.steps, devices, difference.loss, kLossLimit,
                  difference.parameters, kParameterLimit, difference.tensor, advice),
      {{"max_loss_diff", difference.loss},
       {"max_param_diff", difference.parameters},
       {"worst_tensor", difference.tensor},
       {"steps", choices.steps},
       {"pass", pass}});
  return pass ? kDone : kCheckFailed;
}

}  // namespace

Verb verify_verb() {
  return make_verb("verify", "prove that the result is that of one device", verify_flags,
                   verify_plan);
}

}  // namespace motley::cli
