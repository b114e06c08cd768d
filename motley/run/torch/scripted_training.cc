#include "motley/run/torch/scripted_training.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <utility>

#include "motley/base/json.h"
#include "motley/base/text.h"
#include "motley/run/input_specs.h"

namespace motley::run {
namespace {

/// Samples in memory, one input after another.
class MemoryBatch final : public data::Batch {
 public:
  MemoryBatch(std::span<const std::byte> memory, std::vector<data::InputSpec> inputs,
              std::int64_t samples)
      : memory_(memory),
        inputs_(std::move(inputs)),
        offsets_(data::input_offsets(inputs_, samples)),
        samples_(samples) {}
  std::int64_t samples() const override { return samples_; }
  std::int64_t sample_bytes(std::size_t input) const override {
    return data::sample_bytes(inputs_[input]);
  }
  void read(std::size_t input, std::int64_t place, std::byte* out) const override {
    const std::int64_t bytes = sample_bytes(input);
    std::copy_n(memory_.data() + offsets_[input] + place * bytes, bytes, out);
  }

 private:
  std::span<const std::byte> memory_;
  std::vector<data::InputSpec> inputs_;
  std::vector<std::int64_t> offsets_;
  std::int64_t samples_;
};

Json describe(const program::Program& program, int rank) {
  return Json{{"samples", program.global_batch},
              {"places", program.samples_of(program.devices[static_cast<std::size_t>(rank)])}};
}

}  // namespace

Result<std::unique_ptr<ScriptedTraining>> ScriptedTraining::open(WorkerSession& session,
                                                                 const Reporter& reporter) {
  std::unique_ptr<ScriptedTraining> scripted(new ScriptedTraining(session, reporter));
  MOTLEY_ASSIGN(scripted->training_, RankTraining::open(session, reporter));
  return scripted;
}

void ScriptedTraining::report_ready() const {
  Json inputs = Json::array();
  for (const data::InputSpec& input : input_specs(training_->graph()))
    inputs.push_back(Json{{"name", input.name},
                          {"dtype", std::string(dtype_name(input.dtype))},
                          {"shape", input.sample_shape}});
  Json evaluations = Json::array();
  for (const program::Program& program : session_.evaluations)
    evaluations.push_back(describe(program, session_.rank));
  Json fields = training_->ready_fields();
  fields["run_dir"] = session_.job.run_dir;
  fields["lr"] = session_.job.lr;
  fields["inputs"] = std::move(inputs);
  fields["training"] = describe(session_.program, session_.rank);
  fields["evaluations"] = std::move(evaluations);
  fields["evaluation_samples"] = session_.job.evaluation ? session_.job.evaluation->samples : 0;
  reporter_.event("ready", std::move(fields));
}

Result<void> ScriptedTraining::run() {
  report_ready();
  std::string line;
  while (!has_ended_ && std::getline(std::cin, line)) MOTLEY_RETURN_IF_ERROR(obey(line));
  return {};
}

Result<void> ScriptedTraining::obey(const std::string& line) {
  const std::size_t space = line.find(' ');
  const std::string word = line.substr(0, space);
  const std::string rest = space == std::string::npos ? "" : line.substr(space + 1);
  if (word == "memory") return map(rest);
  if (word == "step") return step(rest);
  if (word == "evaluate") return evaluate(rest);
  if (word == "evaluation") return evaluation();
  if (word == "save") {
    MOTLEY_RETURN_IF_ERROR(training_->checkpoint());
    reporter_.event("saved", Json{{"step", training_->steps_done()}});
    return {};
  }
  if (word != "end") return usage_error("run.script", "unknown command: " + line);
  has_ended_ = true;
  return training_->end();
}

Result<void> ScriptedTraining::map(const std::string& path) {
  MOTLEY_ASSIGN(memory_, MappedFile::open(path));
  return {};
}

Result<std::unique_ptr<data::Batch>> ScriptedTraining::batch(
    const program::Program& program) const {
  const auto& device = program.devices[static_cast<std::size_t>(session_.rank)];
  const std::int64_t samples = device.samples;
  const std::vector<data::InputSpec> inputs = input_specs(training_->graph());
  const std::span<const std::byte> memory =
      memory_ ? memory_->bytes() : std::span<const std::byte>{};
  const std::int64_t wanted = data::input_offsets(inputs, samples).back();
  if (static_cast<std::int64_t>(memory.size()) < wanted)
    return usage_error("run.script", fmt::format("memory of {} bytes, wanted {} for {} samples",
                                                 memory.size(), wanted, samples));
  return std::make_unique<MemoryBatch>(memory, inputs, samples);
}

Result<void> ScriptedTraining::step(const std::string& factor) {
  const auto value = find_float(factor);
  if (!value) return usage_error("run.script", "step: wanted a factor, found " + factor);
  MOTLEY_ASSIGN(const auto samples, batch(session_.program));
  MOTLEY_RETURN_IF_ERROR(training_->step(*samples, *value));
  return {};
}

Result<void> ScriptedTraining::evaluate(const std::string& program) {
  const std::int64_t at = find_integer(program).value_or(-1);
  if (at < 0 || at >= static_cast<std::int64_t>(session_.evaluations.size()))
    return usage_error("run.script", "evaluate: no program " + program);
  const program::Program& evaluation = session_.evaluations[static_cast<std::size_t>(at)];
  MOTLEY_ASSIGN(const auto samples, batch(evaluation));
  MOTLEY_ASSIGN(const StepResult result,
                training_->evaluate_batch(static_cast<std::size_t>(at), *samples));
  if (!sums_) sums_.emplace(session_.job.evaluation->outputs);
  sums_->add(result.loss, result.metrics, evaluation.global_batch);
  reporter_.event("evaluated", Json::object());
  return {};
}

Result<void> ScriptedTraining::evaluation() {
  if (!sums_) return usage_error("run.script", "evaluation: of no samples");
  MOTLEY_ASSIGN(const Evaluation found, sums_->result());
  sums_.reset();
  Json metrics = Json::object();
  for (const auto& [name, value] : found.metrics) metrics[name] = value;
  reporter_.event("evaluation", Json{{"step", training_->steps_done()},
                                     {"loss", found.loss},
                                     {"metrics", std::move(metrics)}});
  return {};
}

}  // namespace motley::run
