// Runs one model on one CPU thread, or a GPU, in the engine, for bench/engine.py, which alternates
// it with PyTorch's own loop:
//   bench_engine_driver MODEL DATA BATCH OPTIMIZER LR [cuda]
// Each line on stdin is a number of steps to run. The answer is a line of JSON: step_s (seconds of
// each step), loss (of the last one), peak_bytes, predicted_peak_bytes. Ends with stdin.

#include <fmt/format.h>

#include <cstdio>
#include <iostream>
#include <numeric>
#include <string>
#include <vector>

#include "motley/base/json.h"
#include "motley/base/text.h"
#include "motley/data/batch.h"
#include "motley/graph/model_file.h"
#include "motley/program/memory.h"
#include "motley/run/checkpoints/tensor_files.h"
#include "motley/run/input_specs.h"
#include "motley/run/torch/lanes/executor.h"
#include "motley/run/torch/worker_session.h"
#include "motley/synth/lower.h"

namespace {

using namespace motley;

Result<void> serve(const std::vector<std::string>& arguments) {
  const std::string kind = arguments.size() > 5 ? arguments[5] : "cpu";
  run::WorkerDevice device{.name = "bench", .kind = kind};
  MOTLEY_RETURN_IF_ERROR(run::set_up_device(device));
  const std::int64_t batch = find_integer(arguments[2]).value_or(0);
  synth::LowerOptions options;
  MOTLEY_ASSIGN(options.recipe.optimizer.kind, plan::parse_optimizer_kind(arguments[3]));
  options.recipe.optimizer.lr = find_float(arguments[4]).value_or(0.01);
  if (options.recipe.optimizer.kind == plan::OptimizerKind::kSgd)
    options.recipe.optimizer.momentum = 0.9;
  if (options.recipe.optimizer.kind == plan::OptimizerKind::kAdamW)
    options.recipe.optimizer.weight_decay = 0.01;
  MOTLEY_ASSIGN(const graph::Model model, graph::read_model(arguments[0]));
  MOTLEY_ASSIGN(const program::DeviceProgram program,
                synth::lower_first(model.graph, {batch, 1}, options));
  MOTLEY_ASSIGN(const auto dataset,
                data::open_dataset({arguments[1]}, run::input_specs(model.graph)));
  MOTLEY_ASSIGN(const auto executor,
                run::Executor::create(program, {.kind = kind}, nullptr, nullptr));
  const run::TensorFile file{arguments[0], &*model.weights};
  MOTLEY_ASSIGN(const auto weights, run::TensorFiles::make({&file, 1}));
  MOTLEY_RETURN_IF_ERROR(executor->load(weights, true));
  const Bytes predicted = program::find_memory_peak(program).total;
  std::vector<std::int64_t> samples(static_cast<std::size_t>(batch));
  std::int64_t step = 0;
  for (std::string line; std::getline(std::cin, line);) {
    Json answer = {{"step_s", Json::array()}};
    for (std::int64_t left = find_integer(line).value_or(0); left > 0; --left, ++step) {
      for (std::int64_t i = 0; i < batch; ++i)
        samples[static_cast<std::size_t>(i)] = (step * batch + i) % dataset->samples();
      MOTLEY_ASSIGN(const run::StepResult result,
                    executor->step(step, data::DatasetBatch(*dataset, samples)));
      answer["step_s"].push_back(result.step_s);
      answer["loss"] = result.loss;
      answer["peak_bytes"] = result.peak_bytes;
    }
    answer["predicted_peak_bytes"] = predicted.value;
    fmt::print("{}\n", answer.dump());
    std::fflush(stdout);
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const bool is_known = arguments.size() == 6 && (arguments[5] == "cpu" || arguments[5] == "cuda");
  if (arguments.size() != 5 && !is_known) {
    fmt::print(stderr, "usage: bench_engine_driver MODEL DATA BATCH OPTIMIZER LR [cpu|cuda]\n");
    return 2;
  }
  if (const auto result = serve(arguments); !result) {
    fmt::print(stderr, "{}\n", result.error().message);
    return 1;
  }
  return 0;
}
