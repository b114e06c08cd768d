#include "motley/run/torch/operators/optimizer_direction.h"

#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "motley/run/torch/operators/optimizer_update.h"

namespace motley::run {

namespace {

// ---- directions: of parameter i, from its prepared gradient, at this count of updates

/// Returns the mean of squares along a dimension, which is kept.
at::Tensor mean_squares(const at::Tensor& x, std::int64_t dim) {
  return at::linalg_vector_norm(x, 2, {{dim}}, /*keepdim=*/true)
      .square_()
      .div_(static_cast<double>(x.size(dim)));
}

at::Tensor adafactor_direction(const Frame& frame, const UpdateArguments& a, std::size_t i,
                               const at::Tensor& gradient, double count) {
  constexpr double kBeta2Decay = -0.8, kMost = 1.0;  // torch.optim.Adafactor's
  const double eps = gradient.scalar_type() == at::kDouble ? std::numeric_limits<double>::epsilon()
                                                           : std::numeric_limits<float>::epsilon();
  const double weight = std::pow(count, kBeta2Decay);
  at::Tensor estimate = frame.values[a.state1[i]];
  if (a.state2.empty()) {
    estimate.lerp_(gradient.square(), weight);
    estimate = estimate.clone();
  } else {
    at::Tensor rows = estimate, columns = frame.values[a.state2[i]];
    rows.lerp_(mean_squares(gradient, -1), weight);
    columns.lerp_(mean_squares(gradient, -2), weight);
    estimate = rows.matmul(columns).div_(rows.mean(-2, /*keepdim=*/true).clamp_(eps));
  }
  at::Tensor direction = estimate.clamp_(eps * eps).rsqrt_().mul_(gradient);
  const double width = kMost * std::sqrt(static_cast<double>(direction.numel()));
  return direction.div_(direction.norm(2).to(at::kDouble).div_(width).clamp_min_(1.0));
}

/// Returns the direction of an optimizer that treats each element separately.
template <ElementKind kKind>
at::Tensor element_direction(const Frame& frame, const UpdateArguments& a, std::size_t i,
                             const at::Tensor& gradient, double /*count*/) {
  ElementTensors one{{frame.values[a.parameters[i]]}, {gradient.clone()}, {}, {}};
  one.state1.push_back(frame.values[a.state1[i]]);
  if (!a.state2.empty()) one.state2.push_back(frame.values[a.state2[i]]);
  update_elements(one, a.step(frame, kKind));
  return one.gradients.front();
}

using Direction = at::Tensor (*)(const Frame&, const UpdateArguments&, std::size_t,
                                 const at::Tensor&, double);

/// Vectors have one state; tensors with rows and columns have two.
std::size_t adafactor_states(const UpdateArguments& a) { return a.state2.empty() ? 1 : 2; }

struct DirectionRow {
  OptimizerCounts counts;
  Direction direction;
  bool has_parameter_norms, has_direction_norms;  ///< needed by motley::apply
};
constexpr std::array<DirectionRow, 3> kDirections = {
    {{{"lamb", 3, two_states}, element_direction<ElementKind::kLamb>, true, true},
     {{"adafactor", 1, adafactor_states}, adafactor_direction, true, false},
     {{"muon", 2, one_state}, element_direction<ElementKind::kMuon>, false, false}}};

Result<DirectionRow> find_direction(const std::string& kind) {
  const auto* row =
      std::find_if(kDirections.begin(), kDirections.end(),
                   [&](const DirectionRow& each) { return each.counts.kind == kind; });
  if (row != kDirections.end()) return *row;
  return usage_error("run.bad-instruction",
                     fmt::format("found optimizer '{}', wanted lamb, adafactor or muon", kind));
}

// ---- apply

/// The arguments of motley::apply.
struct ApplyArguments {
  explicit ApplyArguments(InstructionReader& reader)
      : kind(reader.text(0)),
        parameters(reader.buffers(1)),
        directions(reader.buffers(2)),
        extents(reader.numbers(3)),
        parameter_squares(reader.optional_buffer(4)),
        direction_squares(reader.optional_buffer(5)),
        factor(reader.optional_buffer(6)),
        scaling(reader.optional_buffer(7)),
        lr(reader.number(8)),
        weight_decay(reader.number(9)),
        constants(reader.numbers(10)) {}

  std::string kind;
  std::vector<int> parameters, directions;
  std::vector<double> extents;  // rows and columns of the whole parameter, by parameter
  int parameter_squares, direction_squares, factor, scaling;
  double lr, weight_decay;
  std::vector<double> constants;
};

Result<void> check_counts(const ApplyArguments& a, const DirectionRow& wanted) {
  const std::size_t n = a.parameters.size();
  if (a.directions.size() == n && a.extents.size() == 2 * n &&
      a.constants.size() == wanted.counts.constants &&
      (a.parameter_squares >= 0) == wanted.has_parameter_norms &&
      (a.direction_squares >= 0) == wanted.has_direction_norms)
    return {};
  return usage_error("run.bad-instruction",
                     fmt::format("found {} directions, {} extents, {} constants, {} tensors of "
                                 "squares for {} parameters of {}, wanted {}, {}, {}, {}",
                                 a.directions.size(), a.extents.size(), a.constants.size(),
                                 (a.parameter_squares >= 0) + (a.direction_squares >= 0), n, a.kind,
                                 n, 2 * n, wanted.counts.constants,
                                 wanted.has_parameter_norms + wanted.has_direction_norms));
}

/// Returns the norms by parameter, as roots of their squares; empty: not needed.
std::vector<double> read_norms(const Frame& frame, int squares) {
  if (squares < 0) return {};
  const at::Tensor roots = frame.values[squares].sqrt().cpu();
  const double* first = roots.const_data_ptr<double>();
  return {first, first + roots.numel()};
}

/// Sums sequentially: PyTorch's order depends on the processor.
double sum_in_order(const at::Tensor& numbers) {
  const at::Tensor host = numbers.cpu();
  const double* first = host.const_data_ptr<double>();
  return std::accumulate(first, first + host.numel(), 0.0);
}

struct StepNumbers {
  double lr, count;
  std::vector<double> parameter_norms, direction_norms;
};

/// Returns the factor of the direction of parameter i.
double step_length(const ApplyArguments& a, const StepNumbers& step, std::size_t i) {
  const double rows = a.extents[2 * i], columns = a.extents[2 * i + 1];
  if (a.kind == "muon") return step.lr * std::sqrt(std::max(1.0, rows / columns));
  const double of_parameter = step.parameter_norms[i];
  if (a.kind == "adafactor")
    return std::max(a.constants[0], of_parameter / std::sqrt(rows * columns)) *
           std::min(step.lr, 1 / std::sqrt(step.count));
  const double of_direction = step.direction_norms[i];
  return of_parameter > 0 && of_direction > 0 ? step.lr * of_parameter / of_direction : step.lr;
}

/// Runs five Newton-Schulz iterations in bfloat16, as torch.optim.Muon: singular values near 1.
at::Tensor orthogonalize(const at::Tensor& matrix) {
  constexpr std::array<double, 3> kCoefficients = {3.4445, -4.775, 2.0315};
  constexpr int kSteps = 5;
  constexpr double kLeast = 1e-7;
  const bool is_tall = matrix.size(0) > matrix.size(1);
  at::Tensor x = matrix.to(at::kBFloat16, /*non_blocking=*/false, /*copy=*/true);
  if (is_tall) x = x.t();
  x.div_(x.norm().clamp(kLeast));
  for (int step = 0; step < kSteps; ++step) {
    const at::Tensor gram = x.matmul(x.t());
    const at::Tensor change = at::addmm(gram, gram, gram, kCoefficients[1], kCoefficients[2]);
    x = at::addmm(x, change, x, kCoefficients[0]);
  }
  return (is_tall ? x.t() : x).to(matrix.scalar_type()).contiguous();
}

}  // namespace

Result<Kernel> make_direction(InstructionReader& reader, at::Device) {
  const UpdateArguments arguments(reader);
  const std::vector<int> outputs = reader.outputs();
  MOTLEY_RETURN_IF_ERROR(reader.status());
  MOTLEY_ASSIGN(const DirectionRow row, find_direction(arguments.kind));
  MOTLEY_RETURN_IF_ERROR(check_counts(arguments, row.counts));
  if (outputs.size() != arguments.parameters.size())
    return usage_error("run.bad-instruction",
                       fmt::format("found {} outputs for {} parameters", outputs.size(),
                                   arguments.parameters.size()));
  return [arguments, outputs, direction = row.direction](Frame& frame) {
    const double factor = read_factor(frame, arguments.factor);
    const double count = count_updates(frame, arguments.scaling);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      at::Tensor gradient =
          prepare_gradient(frame, arguments, i, std::isfinite(factor) ? factor : 0.0);
      frame.values[outputs[i]] =
          std::isfinite(factor) ? direction(frame, arguments, i, gradient, count) : gradient;
    }
  };
}

Result<Kernel> make_orthogonalize(InstructionReader& reader, at::Device) {
  const int x = reader.buffer(0), out = reader.output(0);
  MOTLEY_RETURN_IF_ERROR(reader.status());
  return [x, out](Frame& frame) { frame.values[out] = orthogonalize(frame.values[x]); };
}

Result<Kernel> make_apply(InstructionReader& reader, at::Device) {
  const ApplyArguments arguments(reader);
  MOTLEY_RETURN_IF_ERROR(reader.status());
  MOTLEY_ASSIGN(const DirectionRow row, find_direction(arguments.kind));
  MOTLEY_RETURN_IF_ERROR(check_counts(arguments, row));
  return [arguments](Frame& frame) {
    if (!std::isfinite(read_factor(frame, arguments.factor))) return;
    const StepNumbers step{arguments.lr * frame.updating.lr_factor,
                           count_updates(frame, arguments.scaling),
                           read_norms(frame, arguments.parameter_squares),
                           read_norms(frame, arguments.direction_squares)};
    const bool decays = arguments.kind != "lamb" && arguments.weight_decay != 0;
    for (std::size_t i = 0; i < arguments.parameters.size(); ++i) {
      const double length = step_length(arguments, step, i);
      const double lost = decays ? step.lr * arguments.weight_decay : 0;
      update_elements(
          {{frame.values[arguments.parameters[i]]}, {frame.values[arguments.directions[i]]}},
          {ElementKind::kApply, length, lost});
    }
  };
}

Result<Kernel> make_square_sums(InstructionReader& reader, at::Device) {
  const std::vector<int> ids = reader.buffers(0);
  const int out = reader.output(0);
  MOTLEY_RETURN_IF_ERROR(reader.status());
  return [ids, out](Frame& frame) {
    const std::vector<at::Tensor> norms = at::_foreach_norm(pick(frame, ids), 2, at::kFloat);
    frame.values[out] = at::stack(norms).to(at::kDouble).square_();
  };
}

namespace {

/// Steps until second moments are meaningful.
constexpr std::int64_t kMomentSteps = 5;

/// Returns the sum of (x / (sqrt(v / correction) + eps))^2.
double scaled_squares(const at::Tensor& x, const at::Tensor& v, double correction, double eps) {
  const bool is_plain = x.is_cpu() && x.scalar_type() == at::kFloat &&
                        v.scalar_type() == at::kFloat && x.is_contiguous() && v.is_contiguous();
  if (!is_plain) {
    const at::Tensor scaled = x.div(v.div(correction).sqrt_().add_(eps));
    return std::pow(scaled.norm(2).to(at::kDouble).item<double>(), 2);
  }
  const auto* const from = x.const_data_ptr<float>();
  const auto* const by = v.const_data_ptr<float>();
  const auto scale = static_cast<float>(1 / correction), least = static_cast<float>(eps);
  constexpr std::int64_t kLanes = 8,
                         kBlock = 4096;  // summed in floats; blocks are summed in doubles
  const std::int64_t elements = x.numel();
  double total = 0;
  for (std::int64_t begin = 0; begin < elements; begin += kBlock) {
    const std::int64_t end = std::min(elements, begin + kBlock);
    std::array<float, kLanes> sums{};
    std::int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes)
      for (std::int64_t lane = 0; lane < kLanes; ++lane) {
        const float each = from[i + lane] / (std::sqrt(by[i + lane] * scale) + least);
        sums[static_cast<std::size_t>(lane)] += each * each;
      }
    for (; i < end; ++i) {
      const float each = from[i] / (std::sqrt(by[i] * scale) + least);
      sums[0] += each * each;
    }
    for (const float sum : sums) total += static_cast<double>(sum);
  }
  return total;
}

}  // namespace

Result<Kernel> make_scaled_square_sums(InstructionReader& reader, at::Device) {
  const std::vector<int> ids = reader.buffers(0), moments = reader.buffers(1);
  const double beta2 = reader.number(2), eps = reader.number(3);
  const int out = reader.output(0);
  MOTLEY_RETURN_IF_ERROR(reader.status());
  if (ids.size() != moments.size())
    return usage_error("run.bad-instruction",
                       fmt::format("found {} moments of {} tensors", moments.size(), ids.size()));
  return [=](Frame& frame) {
    std::vector<double> sums(ids.size(), std::numeric_limits<double>::quiet_NaN());
    const double correction = 1 - std::pow(beta2, static_cast<double>(frame.updating.step));
    if (frame.updating.step >= kMomentSteps)
      for (std::size_t i = 0; i < ids.size(); ++i)
        sums[i] = scaled_squares(frame.values[ids[i]], frame.values[moments[i]], correction, eps);
    frame.values[out] = at::tensor(sums, at::TensorOptions().dtype(at::kDouble)).to(frame.device);
  };
}

Result<Kernel> make_gradient_factor(InstructionReader& reader, at::Device) {
  const int scaling = reader.optional_buffer(0);
  const std::vector<int> squares = reader.buffers(1);
  const std::optional<double> most = reader.optional_number(2);
  const double growth = reader.number(3), backoff = reader.number(4);
  const std::int64_t interval = reader.integer(5);
  const double initial = reader.number(6);
  const int out = reader.output(0), norm_out = reader.output(1);
  MOTLEY_RETURN_IF_ERROR(reader.status());
  return [=](Frame& frame) {
    double sum = 0;
    for (const int id : squares) sum += sum_in_order(frame.values[id]);
    // Needed here because a device whose regions have no backward pass has no tangent to start it.
    if (scaling >= 0 && frame.updating.step == 0) frame.values[scaling].zero_()[0] = initial;
    const double scale = scaling < 0 ? 1.0 : frame.values[scaling][0].item<float>();
    const double norm = std::sqrt(sum) / scale;
    double factor = 1 / scale;
    if (most) factor *= std::min(1.0, *most / (norm + 1e-6));
    if (!std::isfinite(norm)) factor = std::numeric_limits<double>::quiet_NaN();
    const auto options = at::TensorOptions(frame.device).dtype(at::kDouble);
    frame.values[out] = at::full({1}, factor, options);
    frame.values[norm_out] = at::full({1}, norm, options);
    if (scaling < 0) return;
    at::Tensor state = frame.values[scaling];
    const bool is_good = std::isfinite(norm);
    const auto good = is_good ? static_cast<std::int64_t>(state[1].item<float>()) + 1 : 0;
    state[0] = !is_good ? scale * backoff : good == interval ? scale * growth : scale;
    state[1] = static_cast<double>(good == interval ? 0 : good);
    if (is_good) state[2] += 1;
  };
}

Result<Kernel> make_average(InstructionReader& reader, at::Device) {
  const std::vector<int> averages = reader.buffers(0), parameters = reader.buffers(1);
  const double decay = reader.number(2);
  MOTLEY_RETURN_IF_ERROR(reader.status());
  return [averages, parameters, decay](Frame& frame) {
    // After the first step the average is that step's parameters.
    const double weight = frame.updating.step == 0 ? 1.0 : 1 - decay;
    update_elements({pick(frame, averages), pick(frame, parameters)},
                    {ElementKind::kAverage, weight});
  };
}

}  // namespace motley::run
