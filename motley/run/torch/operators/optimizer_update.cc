#include "motley/run/torch/operators/optimizer_update.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sign.h>
#include <ATen/ops/_foreach_sqrt.h>
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

/// Parameters that are updated by one call, with what belongs to them.
struct Tensors {
  std::vector<at::Tensor> parameters, gradients, state1, state2;
};

/// What a step's rule needs beside tensors.
struct Rate {
  double lr;     ///< of this step
  double count;  ///< updates made, this one included
};

using Rule = void (*)(Tensors&, const UpdateArguments&, Rate);

std::vector<at::Tensor> counts_of(const Tensors& tensors, double count) {
  const at::Tensor one =
      at::full({}, count, tensors.parameters.front().options().dtype(at::kFloat));
  return std::vector<at::Tensor>(tensors.parameters.size(), one);
}

void update_sgd(Tensors& t, const UpdateArguments& a, Rate rate) {
  at::_fused_sgd_(t.parameters, t.gradients, t.state1, a.weight_decay, a.constant(0), rate.lr,
                  /*dampening=*/0.0, /*nesterov=*/a.constant(1) != 0, /*maximize=*/false,
                  /*is_first_step=*/false);
}

void update_adam(Tensors& t, const UpdateArguments& a, Rate rate) {
  at::_fused_adam_(t.parameters, t.gradients, t.state1, t.state2, {}, counts_of(t, rate.count),
                   rate.lr, a.constant(0), a.constant(1), a.weight_decay, a.constant(2),
                   /*amsgrad=*/false, /*maximize=*/false, std::nullopt, std::nullopt);
}

void update_adamw(Tensors& t, const UpdateArguments& a, Rate rate) {
  at::_fused_adamw_(t.parameters, t.gradients, t.state1, t.state2, {}, counts_of(t, rate.count),
                    rate.lr, a.constant(0), a.constant(1), a.weight_decay, a.constant(2),
                    /*amsgrad=*/false, /*maximize=*/false, std::nullopt, std::nullopt);
}

void update_adagrad(Tensors& t, const UpdateArguments& a, Rate rate) {
  at::_fused_adagrad_(t.parameters, t.gradients, t.state1, counts_of(t, rate.count), rate.lr,
                      /*lr_decay=*/0.0, a.weight_decay, a.constant(0), /*maximize=*/false,
                      std::nullopt, std::nullopt);
}

void update_rmsprop(Tensors& t, const UpdateArguments& a, Rate rate) {
  const double alpha = a.constant(0), eps = a.constant(1), momentum = a.constant(2);
  std::vector<at::Tensor> gradients = t.gradients;
  if (a.weight_decay != 0) gradients = at::_foreach_add(gradients, t.parameters, a.weight_decay);
  at::_foreach_mul_(t.state1, alpha);
  at::_foreach_addcmul_(t.state1, gradients, gradients, 1 - alpha);
  std::vector<at::Tensor> average = at::_foreach_sqrt(t.state1);
  at::_foreach_add_(average, eps);
  if (momentum == 0.0) {
    at::_foreach_addcdiv_(t.parameters, gradients, average, -rate.lr);
    return;
  }
  at::_foreach_mul_(t.state2, momentum);
  at::_foreach_addcdiv_(t.state2, gradients, average, 1.0);
  at::_foreach_add_(t.parameters, t.state2, -rate.lr);
}

void update_lion(Tensors& t, const UpdateArguments& a, Rate rate) {
  const double beta1 = a.constant(0), beta2 = a.constant(1);
  at::_foreach_mul_(t.parameters, 1 - rate.lr * a.weight_decay);
  std::vector<at::Tensor> step = at::_foreach_lerp(t.gradients, t.state1, beta1);
  at::_foreach_sign_(step);
  at::_foreach_add_(t.parameters, step, -rate.lr);
  at::_foreach_lerp_(t.state1, t.gradients, 1 - beta2);
}

/// Without momentum there is one state less.
std::size_t sgd_states(const UpdateArguments& a) { return a.constant(0) != 0 ? 1 : 0; }
std::size_t rmsprop_states(const UpdateArguments& a) { return a.constant(2) != 0 ? 2 : 1; }

struct RuleRow {
  OptimizerCounts counts;
  Rule rule;
};
constexpr std::array<RuleRow, 6> kRules = {{{{"sgd", 2, sgd_states}, update_sgd},
                                            {{"adam", 3, two_states}, update_adam},
                                            {{"adamw", 3, two_states}, update_adamw},
                                            {{"adagrad", 1, one_state}, update_adagrad},
                                            {{"rmsprop", 3, rmsprop_states}, update_rmsprop},
                                            {{"lion", 2, one_state}, update_lion}}};

/// Gradients that are changed first are copied a few at a time: together they could be as large as
/// all parameters.
constexpr std::int64_t kChunkBytes = 4 << 20;

void update_in_chunks(const Frame& frame, const UpdateArguments& a, Rule rule, Rate rate,
                      double factor) {
  const bool copies = a.touches_gradients();
  const std::size_t n = a.parameters.size();
  for (std::size_t i = 0; i < n;) {
    Tensors chunk;
    for (std::int64_t bytes = 0; i < n && (!copies || bytes < kChunkBytes); ++i) {
      chunk.parameters.push_back(frame.values[a.parameters[i]]);
      chunk.gradients.push_back(prepare_gradient(frame, a, i, factor));
      if (!a.state1.empty()) chunk.state1.push_back(frame.values[a.state1[i]]);
      if (!a.state2.empty()) chunk.state2.push_back(frame.values[a.state2[i]]);
      bytes += static_cast<std::int64_t>(chunk.gradients.back().nbytes());
    }
    rule(chunk, a, rate);
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
      constants(reader.numbers(10)) {}

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
  if (scaling < 0) return static_cast<double>(frame.step + 1);
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
  return [arguments, rule = row->rule](Frame& frame) {
    const double factor = read_factor(frame, arguments.factor);
    if (!std::isfinite(factor) || arguments.parameters.empty()) return;
    const Rate rate{arguments.lr * frame.lr_factor, count_updates(frame, arguments.scaling)};
    update_in_chunks(frame, arguments, rule, rate, factor);
  };
}

}  // namespace motley::run
