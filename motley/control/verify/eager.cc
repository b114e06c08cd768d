#include "motley/control/verify/eager.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "motley/base/json.h"
#include "motley/base/safetensors.h"
#include "motley/data/dataset.h"
#include "motley/run/batch_order.h"
#include "motley/run/feed/loader.h"
#include "motley/run/input_specs.h"
#include "motley/run/launch/programs.h"
#include "motley/synth/ranks/accumulation.h"

namespace motley::control {
namespace {

/// Seconds. PyTorch's loop runs on one core; compared trainings are short.
constexpr double kPatience = 3600;

std::string batches_of(const EagerQuestion& question) {
  return question.folder + "/batches.safetensors";
}

/// Returns the weight of the loss of a micro-batch that PyTorch's loop computes separately.
Result<double> loss_part(const PreparedRun& prepared) {
  const plan::Plan& plan = prepared.planned->plan;
  if (plan.batch_norm_span == plan::BatchNormSpan::kStep) return 1.0;
  MOTLEY_ASSIGN(const synth::Accumulation made,
                synth::accumulate(prepared.inputs->graph(), plan.global_batch,
                                  plan.replicas[0].micro_batches, plan.batch_norm_span));
  return made.part;
}

}  // namespace

/// The samples are named x0, x1, ...
Result<void> write_batches(const PreparedRun& prepared, const EagerQuestion& question) {
  std::error_code fault;
  std::filesystem::create_directories(question.folder, fault);
  if (fault) return runtime_error("cli.run-dir", question.folder + ": " + fault.message());
  const std::vector<data::InputSpec> inputs = run::input_specs(prepared.inputs->graph());
  const data::DataSource& source = prepared.job.data;
  if (data::is_loaded(source)) {
    MOTLEY_ASSIGN(const auto numbers,
                  run::SampleNumbers::make(source, source.samples, prepared.job.shuffle));
    std::vector<std::pair<std::int64_t, std::int64_t>> wanted;
    for (std::int64_t p = 0; p < prepared.job.steps * prepared.planned->plan.global_batch; ++p)
      wanted.emplace_back(numbers.epoch(p), numbers.number(p));
    return run::write_loaded_samples({source, inputs}, wanted, batches_of(question),
                                     Seconds(kPatience));
  }
  MOTLEY_ASSIGN(const auto dataset, data::open_dataset(prepared.job.data, inputs));
  const data::SampleOrder order(dataset->samples(), prepared.job.shuffle);
  const std::int64_t samples = prepared.job.steps * prepared.planned->plan.global_batch;
  std::vector<std::vector<std::byte>> bytes;
  std::vector<NamedTensor> tensors;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::int64_t size = dataset->sample_bytes(i);
    bytes.emplace_back(static_cast<std::size_t>(samples * size));
    for (std::int64_t s = 0; s < samples; ++s)
      dataset->read(i, order.at(s), bytes.back().data() + s * size);
    TensorView view{inputs[i].dtype, {samples}, {}};
    view.shape.insert(view.shape.end(), inputs[i].sample_shape.begin(),
                      inputs[i].sample_shape.end());
    view.bytes = bytes.back();
    tensors.push_back({fmt::format("x{}", i), view});
  }
  return write_safetensors(batches_of(question), tensors, {});
}

Result<Trained> train_eagerly(const PreparedRun& prepared, const EagerQuestion& question,
                              std::optional<int> changes) {
  const std::string model =
      fmt::format("{}/{}.safetensors", question.folder, changes ? "disturbed" : "model");
  std::vector<std::string> words = {"-m",
                                    "motley.verify_run",
                                    question.source,
                                    "--plan",
                                    prepared.directory.plan(),
                                    "--job",
                                    prepared.directory.job(),
                                    "--weights",
                                    prepared.job.model_path,
                                    "--batches",
                                    batches_of(question),
                                    "-o",
                                    model};
  MOTLEY_ASSIGN(const double part, loss_part(prepared));
  words.insert(words.end(), {"--loss-part", fmt::format("{}", part)});
  if (changes) words.insert(words.end(), {"--disturbed", std::to_string(*changes)});
  const auto text = run::run_program(question.python, words, kPatience);
  if (!text) return with_context("PyTorch's own loop", text.error());
  MOTLEY_ASSIGN(const Json losses, parse_json(*text, "motley.verify_run"));
  if (!losses.is_array())
    return runtime_error("verify.eager", "motley.verify_run: gave no list of losses");
  Trained trained{.model = model};
  for (const Json& loss : losses)
    trained.losses.push_back(loss.is_number() ? loss.get<double>() : 0);
  return trained;
}

}  // namespace motley::control
