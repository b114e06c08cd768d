#include "motley/cli/context/verb.h"
#include "motley/cli/demo/demo.h"
#include "motley/cli/demo/demo_places.h"
#include "motley/control/survey/worker_build.h"
#include "motley/run/launch/processors.h"

namespace motley::cli {
namespace {

struct DemoOptions {
  std::string python, examples;
  std::string directory = "motley-demo";
};

std::vector<Flag> demo_flags(DemoOptions& options) {
  return {{"--python", &options.python,
           "interpreter with PyTorch (default: MOTLEY_PYTHON, else that of motley's environment or "
           "of the worker's PyTorch, else python3)"},
          {"--examples", &options.examples,
           "folder of examples (default: those of the sources, or that were installed with "
           "motley)"},
          {"--directory", &options.directory, "where to write", kShown}};
}

/// A run has enough steps for a median of five or more, and takes a second or two by either plan.
const std::vector<DemoModel> kModels = {{.name = "digits_cnn",
                                         .function = "digits_cnn.py:model",
                                         .data = "data/digits.npz",
                                         .global_batch = 280,
                                         .equal_steps = 10,
                                         .steps = 30,
                                         .optimizer = "sgd",
                                         .lr = 0.05,
                                         .momentum = 0.9},
                                        {.name = "char_gpt",
                                         .function = "char_gpt.py:model",
                                         .data = "data/devils_dictionary.bin",
                                         .seq = 64,
                                         .global_batch = 56,
                                         .equal_steps = 6,
                                         .steps = 12,
                                         .optimizer = "adamw",
                                         .lr = 0.003}};

Result<int> show_demo(const DemoOptions& options, const Context& context) {
  MOTLEY_ASSIGN(const std::string torch, context.workers->torch_version());
  const auto named = context.environment.find("MOTLEY_PYTHON");
  const auto build = control::read_worker_build(control::worker_of(context.program));
  const DemoSearch search{.program = context.program,
                          .torch_folder = build.folder,
                          .torch = torch,
                          .python = options.python,
                          .named_python = named == context.environment.end() ? "" : named->second,
                          .examples = options.examples};
  DemoSetting setting{.directory = options.directory,
                      .processors = static_cast<int>(run::usable_processors().size())};
  MOTLEY_ASSIGN(setting.places, find_demo_places(search, ask_python));
  return demonstrate(kModels, setting, context);
}

}  // namespace

Verb demo_verb() {
  return make_verb("demo", "train two models on three emulated devices and check the result",
                   demo_flags, show_demo);
}

}  // namespace motley::cli
