#include "motley/run/torch/operators/optimizer_update.h"

#include <ATen/ops/_fused_adagrad.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace motley::run {

namespace {

/// Updates with PyTorch's fused kernels, whose last bits differ between devices.
void update_fused(const ElementTensors& t, const ElementStep& s) {
  const std::array<double, 3>& c = s.constants;
  const auto counts = [&] {
    const at::Tensor one = at::full({}, s.count, t.parameters.front().options().dtype(at::kFloat));
    return std::vector<at::Tensor>(t.parameters.size(), one);
  };
  if (s.kind == ElementKind::kSgd)
    at::_fused_sgd_(t.parameters, t.gradients, t.state1, s.weight_decay, c[0], s.lr,
                    /*dampening=*/0.0, /*nesterov=*/c[1] != 0, /*maximize=*/false,
                    /*is_first_step=*/false);
  else if (s.kind == ElementKind::kAdam)
    at::_fused_adam_(t.parameters, t.gradients, t.state1, t.state2, {}, counts(), s.lr, c[0], c[1],
                     s.weight_decay, c[2], /*amsgrad=*/false, /*maximize=*/false, std::nullopt,
                     std::nullopt);
  else if (s.kind == ElementKind::kAdamW)
    at::_fused_adamw_(t.parameters, t.gradients, t.state1, t.state2, {}, counts(), s.lr, c[0], c[1],
                      s.weight_decay, c[2], /*amsgrad=*/false, /*maximize=*/false, std::nullopt,
                      std::nullopt);
  else if (s.kind == ElementKind::kAdagrad)
    at::_fused_adagrad_(t.parameters, t.gradients, t.state1, counts(), s.lr, /*lr_decay=*/0.0,
                        s.weight_decay, c[0], /*maximize=*/false, std::nullopt, std::nullopt);
  else
    update_elements(t, s);
}

/// Without momentum there is one state less.
std::size_t sgd_states(const UpdateArguments& a) { return a.constant(0) != 0 ? 1 : 0; }
std::size_t rmsprop_states(const UpdateArguments& a) { return a.constant(2) != 0 ? 2 : 1; }

struct RuleRow {
  OptimizerCounts counts;
  ElementKind kind;
};
constexpr std::array<RuleRow, 6> kRules = {{{{"sgd", 2, sgd_states}, ElementKind::kSgd},
                                            {{"adam", 3, two_states}, ElementKind::kAdam},
                                            {{"adamw", 3, two_states}, ElementKind::kAdamW},
                                            {{"adagrad", 1, one_state}, ElementKind::kAdagrad},
                                            {{"rmsprop", 3, rmsprop_states}, ElementKind::kRmsprop},
                                            {{"lion", 2, one_state}, ElementKind::kLion}}};

/// Of converted gradients and list temporaries, which together may be as large as the parameters.
constexpr std::int64_t kChunkBytes = 4 << 20;

void update_in_chunks(const Frame& frame, const UpdateArguments& a, const ElementStep& step,
                      double factor) {
  const bool is_fused = !frame.device.is_cpu() && !a.is_portable;
  const bool copies = a.touches_gradients() || !(is_fused || frame.device.is_cpu());
  const std::size_t n = a.parameters.size();
  for (std::size_t i = 0; i < n;) {
    ElementTensors chunk;
    for (std::int64_t bytes = 0; i < n && (!copies || bytes < kChunkBytes); ++i) {
      chunk.parameters.push_back(frame.values[a.parameters[i]]);
      chunk.gradients.push_back(prepare_gradient(frame, a, i, factor));
      if (!a.state1.empty()) chunk.state1.push_back(frame.values[a.state1[i]]);
      if (!a.state2.empty()) chunk.state2.push_back(frame.values[a.state2[i]]);
      bytes += static_cast<std::int64_t>(chunk.gradients.back().nbytes());
    }
    if (is_fused)
      update_fused(chunk, step);
    else
      update_elements(chunk, step);
  }
}

}  // namespace

UpdateArguments::UpdateArguments(InstructionReader& reader)
    : kind(reader.text(0)),
      parameters(reader.buffers(1)),
      gradients(reader.buffers(2)),
      state1(reader.buffers(3)),
      state2(reader.buffers(4)),
      factor(reader.optional_buffer(5)),
      scaling(reader.optional_buffer(6)),
      clip_value(reader.optional_number(7)),
      lr(reader.number(8)),
      weight_decay(reader.number(9)),
      constants(reader.numbers(10)),
      is_portable(reader.instruction().overload == "portable") {}

ElementStep UpdateArguments::step(const Frame& frame, ElementKind kind) const {
  ElementStep step{kind, lr * frame.updating.lr_factor, weight_decay,
                   count_updates(frame, scaling)};
  std::copy_n(constants.begin(), std::min(constants.size(), step.constants.size()),
              step.constants.begin());
  return step;
}

Result<void> check_counts(const UpdateArguments& a, const OptimizerCounts& wanted) {
  if (a.constants.size() != wanted.constants)
    return usage_error("run.bad-instruction",
                       fmt::format("found {} constants of {}, wanted {}", a.constants.size(),
                                   a.kind, wanted.constants));
  const std::size_t states = wanted.states(a), n = a.parameters.size();
  const std::size_t n1 = states > 0 ? n : 0, n2 = states > 1 ? n : 0;
  if (a.gradients.size() == n && a.state1.size() == n1 && a.state2.size() == n2) return {};
  return usage_error(
      "run.bad-instruction",
      fmt::format("found {} gradients, {} and {} states for {} parameters of {}, wanted {}, {}, {}",
                  a.gradients.size(), a.state1.size(), a.state2.size(), n, a.kind, n, n1, n2));
}

double read_factor(const Frame& frame, int factor) {
  return factor < 0 ? 1.0 : frame.values[factor].item<double>();
}

double count_updates(const Frame& frame, int scaling) {
  if (scaling < 0) return static_cast<double>(frame.updating.step + 1);
  return frame.values[scaling][2].item<float>();
}

std::vector<at::Tensor> pick(const Frame& frame, const std::vector<int>& ids) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(ids.size());
  for (const int id : ids) tensors.push_back(frame.values[id]);
  return tensors;
}

at::Tensor prepare_gradient(const Frame& frame, const UpdateArguments& arguments, std::size_t i,
                            double factor) {
  at::Tensor gradient = frame.values[arguments.gradients[i]]
                            .to(frame.values[arguments.parameters[i]].scalar_type())
                            .contiguous();
  if (factor != 1.0) gradient = gradient.mul(factor);
  if (arguments.clip_value) gradient = gradient.clamp(-*arguments.clip_value, arguments.clip_value);
  return gradient;
}

Result<Kernel> make_update(InstructionReader& reader, at::Device) {
  const UpdateArguments arguments(reader);
  MOTLEY_RETURN_IF_ERROR(reader.status());
  const auto* row = std::find_if(kRules.begin(), kRules.end(), [&](const RuleRow& each) {
    return each.counts.kind == arguments.kind;
  });
  if (row == kRules.end())
    return usage_error(
        "run.bad-instruction",
        fmt::format("found optimizer '{}', wanted sgd, adam, adamw, adagrad, rmsprop or lion",
                    arguments.kind));
  MOTLEY_RETURN_IF_ERROR(check_counts(arguments, row->counts));
  return [arguments, kind = row->kind](Frame& frame) {
    const double factor = read_factor(frame, arguments.factor);
    if (!std::isfinite(factor) || arguments.parameters.empty()) return;
    update_in_chunks(frame, arguments, arguments.step(frame, kind), factor);
  };
}

}  // namespace motley::run
