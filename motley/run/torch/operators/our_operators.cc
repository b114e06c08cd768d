#include "motley/run/torch/operators/our_operators.h"

#include <ATen/ops/_ctc_loss.h>
#include <ATen/ops/_ctc_loss_backward.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <utility>

#include "motley/base/check.h"
#include "motley/program/boxes.h"
#include "motley/program/parts.h"
#include "motley/run/torch/operators/attention.h"
#include "motley/run/torch/operators/batch_norm.h"
#include "motley/run/torch/operators/distributions.h"
#include "motley/run/torch/operators/dropout.h"
#include "motley/run/torch/operators/instruction_reader.h"
#include "motley/run/torch/operators/optimizer_direction.h"
#include "motley/run/torch/operators/optimizer_update.h"
#include "motley/run/torch/operators/tensors.h"

namespace motley::run {

namespace {

at::Tensor value_or_none(const Frame& frame, int id) {
  return id < 0 ? at::Tensor() : frame.values[id];
}

std::int64_t elements(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::int64_t total_extent(const std::vector<std::int64_t>& extents) {
  return std::accumulate(extents.begin(), extents.end(), std::int64_t{0});
}

/// Calls `body(begin, piece)` for each non-empty part of a flat tensor, as [before, extent, after];
/// `begin` is its position in the middle dimension.
template <typename Body>
void for_each_part(const program::TensorParts& parts, const at::Tensor& flat, const Body& body) {
  std::int64_t begin = 0, offset = 0;
  for (const std::int64_t extent : parts.extents) {
    const std::int64_t count = parts.before * extent * parts.after;
    if (count > 0)
      body(begin, flat.narrow(0, offset, count).view({parts.before, extent, parts.after}));
    begin += extent;
    offset += count;
  }
}

Result<Kernel> make_load(InstructionReader& reader, at::Device) {
  const auto input = static_cast<std::size_t>(reader.integer(0));
  const int out = reader.output(0);
  MOTLEY_RETURN_IF_ERROR(reader.status());
  const program::Buffer buffer = reader.about(out);
  return [input, out, buffer](Frame& frame) {
    const data::Batch& batch = *frame.batch;
    const std::int64_t size = batch.sample_bytes(input), samples = batch.samples();
    TORCH_CHECK(size * samples == buffer.bytes().value, "input ", input, ": found ", samples,
                " samples of ", size, " bytes, wanted ", buffer.bytes().value, " bytes");
    at::Tensor& value = frame.values[out];
    const at::Device cpu(at::kCPU);
    // Refills the previous step's tensor, unless it is on another device.
    at::Tensor host = value.defined() && value.is_cpu() ? value
                      : frame.device.is_cpu()           ? allocate(buffer, cpu)
                                                        : allocate_pinned(buffer);
    auto* target = static_cast<std::byte*>(host.mutable_data_ptr());
    for (std::int64_t i = 0; i < samples; ++i) batch.read(input, i, target + i * size);
    // The copy runs beside this thread; PyTorch reuses pinned memory only after it.
    value = frame.device.is_cpu()
                ? std::move(host)
                : host.to(frame.device, host.scalar_type(), /*non_blocking=*/true);
  };
}

Result<Kernel> make_tangent(InstructionReader& reader, at::Device device) {
  const bool is_scaled = !reader.instruction().arguments.empty();
  const int scaling = is_scaled ? reader.buffer(0) : -1, out = reader.output(0);
  const double initial = is_scaled ? reader.number(1) : 1.0;
  MOTLEY_RETURN_IF_ERROR(reader.status());
  const program::Buffer& buffer = reader.about(out);
  const auto dtype = scalar_type(buffer.dtype);
  const at::Tensor one = at::ones(buffer.shape, at::TensorOptions(device).dtype(dtype));
  return [out, one, scaling, initial, dtype](Frame& frame) {
    frame.values[out] = one;
    if (scaling < 0) return;
    at::Tensor state = frame.values[scaling];
    if (frame.step == 0) state.zero_()[0] = initial;
    frame.values[out] = state[0].to(dtype);
  };
}

Result<Kernel> make_stop_request(InstructionReader& reader, at::Device device) {
  const int out = reader.output(0);
  MOTLEY_RETURN_IF_ERROR(reader.status());
  return [out, options = at::TensorOptions(device).dtype(at::kFloat)](Frame& frame) {
    // Summed with a bucket: all ranks learn of a request in one step (docs/decisions/0002).
    const int wish = frame.wish.load(std::memory_order_relaxed);
    // New in each step, because the sum overwrites it.
    frame.values[out] = at::full({1}, static_cast<double>(wish), options);
  };
}

Result<Kernel> make_ballot(InstructionReader& reader, at::Device device) {
  const int out = reader.output(0);
  MOTLEY_RETURN_IF_ERROR(reader.status());
  return [out, options = at::TensorOptions(device).dtype(at::kFloat)](Frame& frame) {
    frame.values[out] = at::ones({1}, options);
  };
}

/// The arguments of draws: number of the draw, outer, inner, first, global, run, skip, stride.
struct PlaceArguments {
  PlaceArguments(InstructionReader& reader, std::size_t at)
      : draw(reader.integer(at)),
        place{.outer = reader.integer(at + 1),
              .inner = reader.integer(at + 2),
              .first = reader.integer(at + 3),
              .global = reader.integer(at + 4),
              .run = reader.integer(at + 5),
              .skip = reader.integer(at + 6),
              .stride = reader.integer(at + 7)} {}

  Result<void> verify() const {
    if (draw >= 0 && draw < (1 << 30) && place.outer > 0 && place.inner > 0 && place.run > 0 &&
        place.skip >= 0 && place.skip <= place.stride - place.run)
      return {};
    return usage_error(
        "run.bad-instruction",
        fmt::format(
            "found draw {}, outer {}, inner {}, {} behind {} of {}, wanted a draw from 0 to "
            "2^30, positive sizes and no more than there are",
            draw, place.outer, place.inner, place.run, place.skip, place.stride));
  }
  RandomStream stream(const Frame& frame) const {
    return {.seed = frame.seed, .step = frame.step, .draw = draw};
  }

  std::int64_t draw;
  ElementPlace place;
};

Result<Kernel> make_dropout(InstructionReader& reader, at::Device) {
  const int x = reader.buffer(0), out = reader.output(0), mask = reader.output(1);
  const double p = reader.number(1);
  const PlaceArguments drawn(reader, 2);
  MOTLEY_RETURN_IF_ERROR(reader.status());
  MOTLEY_RETURN_IF_ERROR(drawn.verify());
  if (p < 0 || p > 1)
    return usage_error("run.bad-instruction", fmt::format("found p {}, wanted p in [0, 1]", p));
  return [x, out, mask, p, drawn](Frame& frame) {
    std::tie(frame.values[out], frame.values[mask]) =
        dropout(frame.values[x], p, drawn.place, drawn.stream(frame));
  };
}

Result<Kernel> make_random(InstructionReader& reader, at::Device) {
  const std::string name = reader.text(0);
  const PlaceArguments drawn(reader, 1);
  const int out = reader.output(0);
  MOTLEY_RETURN_IF_ERROR(reader.status());
  MOTLEY_RETURN_IF_ERROR(drawn.verify());
  const program::Buffer& about = reader.about(out);
  const auto distribution = find_distribution(name);
  if (!distribution || !gives(*distribution, scalar_type(about.dtype)))
    return usage_error(
        "run.bad-instruction",
        fmt::format("found {} numbers \"{}\", wanted floating ones \"uniform\", \"exponential\" or "
                    "\"normal\", or i64 ones \"bits\" or \"permutation\"",
                    dtype_name(about.dtype), name));
  const Draw what{*distribution, about.shape, scalar_type(about.dtype), drawn.place};
  return [what, drawn, out](Frame& frame) {
    frame.values[out] = draw(what, drawn.stream(frame), frame.device);
  };
}

/// The arguments of both attention operators from `first` on: mask, dropout_p, is_causal, scale.
struct AttentionArguments {
  AttentionArguments(InstructionReader& reader, std::size_t inputs, std::size_t first)
      : q(reader.buffer(inputs)),
        k(reader.buffer(inputs + 1)),
        v(reader.buffer(inputs + 2)),
        mask(reader.optional_buffer(first)),
        dropout_p(reader.number(first + 1)),
        is_causal(reader.boolean(first + 2)),
        scale(reader.optional_number(first + 3)) {}

  AttentionInputs inputs(const Frame& frame) const {
    return {frame.values[q], frame.values[k],
            frame.values[v], value_or_none(frame, mask),
            is_causal,       scale};
  }
  // PyTorch's fused kernels draw masks by local position, so a split would change them.
  Result<void> verify() const {
    if (dropout_p == 0.0) return {};
    return usage_error("run.attention-dropout",
                       fmt::format("found dropout {} inside attention, wanted 0: apply dropout "
                                   "outside of scaled_dot_product_attention",
                                   dropout_p));
  }

  int q, k, v, mask;
  double dropout_p;
  bool is_causal;
  std::optional<double> scale;
};

Result<Kernel> make_attention(InstructionReader& reader, at::Device) {
  const AttentionArguments arguments(reader, 0, 3);
  const int out = reader.output(0), saved = reader.output(1);
  MOTLEY_RETURN_IF_ERROR(reader.status());
  MOTLEY_RETURN_IF_ERROR(arguments.verify());
  return [arguments, out, saved](Frame& frame) {
    std::tie(frame.values[out], frame.values[saved]) = attention(arguments.inputs(frame));
  };
}

Result<Kernel> make_attention_backward(InstructionReader& reader, at::Device) {
  const AttentionArguments arguments(reader, 1, 6);
  const int grad = reader.buffer(0), out = reader.buffer(4), saved = reader.buffer(5);
  const std::array<int, 3> results = {reader.output(0), reader.output(1), reader.output(2)};
  MOTLEY_RETURN_IF_ERROR(reader.status());
  MOTLEY_RETURN_IF_ERROR(arguments.verify());
  return [arguments, grad, out, saved, results](Frame& frame) {
    auto gradients = attention_backward(arguments.inputs(frame), frame.values[grad],
                                        frame.values[out], frame.values[saved]);
    for (std::size_t i = 0; i < 3; ++i) frame.values[results[i]] = std::move(gradients[i]);
  };
}

Result<Kernel> make_label_count(InstructionReader& reader, at::Device) {
  const int target = reader.buffer(0), weight = reader.optional_buffer(1), out = reader.output(0);
  const std::int64_t ignore_index = reader.integer(2);
  MOTLEY_RETURN_IF_ERROR(reader.status());
  return [target, weight, out, ignore_index](Frame& frame) {
    const at::Tensor& labels = frame.values[target];
    const at::Tensor counted = labels.ne(ignore_index);
    if (weight < 0) {
      frame.values[out] = counted.sum().to(at::kFloat);
      return;
    }
    // Ignored labels need not be valid classes.
    const at::Tensor classes = labels.masked_fill(counted.logical_not(), 0).flatten();
    frame.values[out] =
        frame.values[weight].index_select(0, classes).mul_(counted.flatten()).sum().to(at::kFloat);
  };
}

Result<Kernel> make_batch_norm_sums(InstructionReader& reader, at::Device) {
  const int x = reader.buffer(0), out = reader.output(0);
  MOTLEY_RETURN_IF_ERROR(reader.status());
  return [x, out](Frame& frame) { frame.values[out] = batch_norm_sums(frame.values[x]); };
}

Result<Kernel> make_batch_norm(InstructionReader& reader, at::Device) {
  const int x = reader.buffer(0), weight = reader.optional_buffer(1);
  const int bias = reader.optional_buffer(2), running_mean = reader.optional_buffer(3);
  const int running_var = reader.optional_buffer(4), sums = reader.buffer(5);
  const std::int64_t count = reader.integer(6);
  const double momentum = reader.number(7), eps = reader.number(8);
  std::array<int, 5> results;
  for (std::size_t i = 0; i < results.size(); ++i) results[i] = reader.output(i);
  MOTLEY_RETURN_IF_ERROR(reader.status());
  return [=](Frame& frame) {
    BatchNormResult result =
        batch_norm({frame.values[x], value_or_none(frame, weight), value_or_none(frame, bias),
                    value_or_none(frame, running_mean), value_or_none(frame, running_var),
                    frame.values[sums], count, momentum, eps});
    frame.values[results[0]] = std::move(result.out);
    frame.values[results[1]] = std::move(result.mean);
    frame.values[results[2]] = std::move(result.rstd);
    frame.values[results[3]] = std::move(result.running_mean);
    frame.values[results[4]] = std::move(result.running_var);
  };
}

Result<Kernel> make_batch_norm_backward_sums(InstructionReader& reader, at::Device) {
  const int grad = reader.buffer(0), x = reader.buffer(1), mean = reader.buffer(2);
  const int rstd = reader.buffer(3), out = reader.output(0);
  MOTLEY_RETURN_IF_ERROR(reader.status());
  return [=](Frame& frame) {
    frame.values[out] = batch_norm_backward_sums(frame.values[grad], frame.values[x],
                                                 frame.values[mean], frame.values[rstd]);
  };
}

Result<Kernel> make_batch_norm_backward(InstructionReader& reader, at::Device) {
  const int grad = reader.buffer(0), x = reader.buffer(1), weight = reader.optional_buffer(2);
  const int mean = reader.buffer(3), rstd = reader.buffer(4), sums = reader.buffer(5);
  const std::int64_t count = reader.integer(6);
  const std::array<int, 3> results = {reader.output(0), reader.output(1), reader.output(2)};
  MOTLEY_RETURN_IF_ERROR(reader.status());
  return [=](Frame& frame) {
    auto gradients =
        batch_norm_backward({frame.values[grad], frame.values[x], value_or_none(frame, weight),
                             frame.values[mean], frame.values[rstd], frame.values[sums], count});
    for (std::size_t i = 0; i < 3; ++i) frame.values[results[i]] = std::move(gradients[i]);
  };
}

Result<Kernel> make_pack(InstructionReader& reader, at::Device) {
  const std::vector<int> values = reader.buffers(0);
  const int out = reader.output(0);
  MOTLEY_RETURN_IF_ERROR(reader.status());
  const program::Buffer flat = reader.about(out);
  std::int64_t total = 0;
  for (const int id : values) total += reader.about(id).elements();
  if (total != flat.elements())
    return usage_error("run.bad-instruction",
                       fmt::format("found {} elements to pack, wanted {}", total, flat.elements()));
  return [values, out, flat](Frame& frame) {
    at::Tensor packed = allocate(flat, frame.device);
    std::int64_t offset = 0;
    for (const int id : values) {
      const at::Tensor& value = frame.values[id];
      packed.narrow(0, offset, value.numel()).view(value.sizes()).copy_(value);
      offset += value.numel();
    }
    frame.values[out] = std::move(packed);
  };
}

Result<Kernel> make_unpack(InstructionReader& reader, at::Device) {
  const int flat = reader.buffer(0);
  const std::vector<int> outputs = reader.outputs();
  MOTLEY_RETURN_IF_ERROR(reader.status());
  std::vector<std::vector<std::int64_t>> shapes;
  for (const int id : outputs) shapes.push_back(reader.about(id).shape);
  return [flat, outputs, shapes](Frame& frame) {
    const at::Tensor packed = frame.values[flat];
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const std::int64_t count = elements(shapes[i]);
      frame.values[outputs[i]] = packed.narrow(0, offset, count).view(shapes[i]);
      offset += count;
    }
  };
}

/// Reads arguments of cut, join and part, which were verified with the program.
Result<program::TensorParts> read_parts(const program::Instruction& instruction) {
  auto parts = program::find_tensor_parts(instruction);
  if (parts) return std::move(*parts);
  return usage_error("run.bad-instruction",
                     fmt::format("the arguments are not those of {}", instruction.op));
}

Result<Kernel> make_cut(InstructionReader& reader, at::Device) {
  MOTLEY_ASSIGN(const program::TensorParts parts, read_parts(reader.instruction()));
  const program::Buffer flat = reader.about(parts.result.value);
  const std::int64_t extents = total_extent(parts.extents);
  return [parts, flat, extents](Frame& frame) {
    const at::Tensor x =
        frame.values[parts.value.index()].reshape({parts.before, extents, parts.after});
    at::Tensor packed = allocate(flat, frame.device);
    for_each_part(parts, packed, [&](std::int64_t begin, const at::Tensor& piece) {
      piece.copy_(x.narrow(1, begin, piece.size(1)));
    });
    frame.values[parts.result.index()] = std::move(packed);
  };
}

Result<Kernel> make_join(InstructionReader& reader, at::Device) {
  MOTLEY_ASSIGN(const program::TensorParts parts, read_parts(reader.instruction()));
  const program::Buffer whole = reader.about(parts.result.value);
  const std::int64_t extents = total_extent(parts.extents);
  return [parts, whole, extents](Frame& frame) {
    at::Tensor y = allocate(whole, frame.device);
    const at::Tensor seen = y.view({parts.before, extents, parts.after});
    for_each_part(parts, frame.values[parts.value.index()],
                  [&](std::int64_t begin, const at::Tensor& piece) {
                    seen.narrow(1, begin, piece.size(1)).copy_(piece);
                  });
    frame.values[parts.result.index()] = std::move(y);
  };
}

Result<Kernel> make_part(InstructionReader& reader, at::Device) {
  MOTLEY_ASSIGN(const program::TensorParts parts, read_parts(reader.instruction()));
  const program::Buffer about = reader.about(parts.result.value);
  const std::int64_t all = reader.about(parts.value.value).elements();
  const std::int64_t row = parts.before * parts.after;
  return [parts, about, all, row](Frame& frame) {
    at::Tensor y = allocate(about, frame.device);
    if (const std::int64_t count = y.numel(); count > 0) {
      const std::vector<std::int64_t> seen = {parts.before, all / row, parts.after};
      const at::Tensor x = frame.values[parts.value.index()].reshape(seen);
      y.view({parts.before, count / row, parts.after}).copy_(x.narrow(1, parts.begin, count / row));
    }
    frame.values[parts.result.index()] = std::move(y);
  };
}

at::Tensor seen_as(const program::Box& box, const at::Tensor& tensor) {
  std::vector<std::int64_t> extents, strides;
  for (const program::Box::Side& side : box.sides) {
    extents.push_back(side.extent);
    strides.push_back(side.stride);
  }
  return tensor.as_strided(extents, strides, tensor.storage_offset() + box.begin);
}

/// Reads arguments of take and put, which were verified with the program.
Result<program::BoxCopies> read_copies(const program::Instruction& instruction) {
  auto copies = program::find_box_copies(instruction);
  if (copies) return std::move(*copies);
  return usage_error("run.bad-instruction",
                     fmt::format("the arguments are not those of {}", instruction.op));
}

Result<Kernel> make_take(InstructionReader& reader, at::Device) {
  MOTLEY_ASSIGN(const program::BoxCopies copies, read_copies(reader.instruction()));
  const program::Buffer flat = reader.about(copies.result.value);
  return [copies, flat](Frame& frame) {
    at::Tensor taken = allocate(flat, frame.device);
    std::int64_t offset = 0;
    for (const auto& [id, box] : copies.from) {
      const at::Tensor from = seen_as(box, frame.values[id.index()].contiguous());
      taken.narrow(0, offset, from.numel()).view(from.sizes()).copy_(from);
      offset += from.numel();
    }
    frame.values[copies.result.index()] = std::move(taken);
  };
}

Result<Kernel> make_put(InstructionReader& reader, at::Device) {
  MOTLEY_ASSIGN(const program::BoxCopies copies, read_copies(reader.instruction()));
  return [copies](Frame& frame) {
    for (std::size_t i = 0; i < copies.into.size(); ++i) {
      const auto& [target, into] = copies.into[i];
      const auto& [value, from] = copies.from[i];
      seen_as(into, frame.values[target.index()])
          .copy_(seen_as(from, frame.values[value.index()].contiguous()));
    }
  };
}

Result<Kernel> make_assign(InstructionReader& reader, at::Device) {
  const std::vector<int> targets = reader.buffers(0), values = reader.buffers(1);
  MOTLEY_RETURN_IF_ERROR(reader.status());
  if (targets.size() != values.size())
    return usage_error("run.bad-instruction", fmt::format("found {} values for {} targets",
                                                          values.size(), targets.size()));
  return [targets, values](Frame& frame) {
    for (std::size_t i = 0; i < targets.size(); ++i)
      frame.values[targets[i]].copy_(frame.values[values[i]]);
  };
}

Result<Kernel> make_report(InstructionReader& reader, at::Device) {
  const int loss = reader.buffer(0), stop = reader.optional_buffer(1);
  const int norm = reader.optional_buffer(2);
  const std::vector<int> metrics = reader.buffers(3);
  const std::size_t given = reader.instruction().arguments.size();
  std::vector<int> squares;
  std::vector<std::pair<std::int64_t, std::vector<int>>> pieces;  // samples, square sums
  if (given > 4) {
    squares = reader.buffers(4);
    const std::vector<double> samples = reader.numbers(5);
    MOTLEY_RETURN_IF_ERROR(reader.status());
    if (samples.size() != given - 6)
      return usage_error(
          "run.bad-instruction",
          fmt::format("found {} lists of squares for {} pieces", given - 6, samples.size()));
    for (std::size_t i = 0; i < samples.size(); ++i)
      pieces.emplace_back(static_cast<std::int64_t>(samples[i]), reader.buffers(6 + i));
  }
  MOTLEY_RETURN_IF_ERROR(reader.status());
  return [loss, stop, norm, metrics, pieces, squares](Frame& frame) {
    frame.metrics = pick(frame, metrics);
    if (!squares.empty() && frame.counts_squares) {
      for (const auto& [samples, own] : pieces)
        frame.pieces.emplace_back(samples, at::cat(pick(frame, own)).sum());
      frame.squares = at::cat(pick(frame, squares)).sum();
    }
    frame.loss = frame.values[loss];
    frame.stop = value_or_none(frame, stop);
    frame.gradient_norm = value_or_none(frame, norm);
  };
}

std::vector<std::int64_t> integers_of(const at::Tensor& tensor) {
  const at::Tensor here = tensor.to(at::kCPU, at::kLong).contiguous();
  const auto* first = here.const_data_ptr<std::int64_t>();
  return {first, first + here.numel()};
}

Result<Kernel> make_ctc_loss(InstructionReader& reader, at::Device) {
  const int x = reader.buffer(0), targets = reader.buffer(1);
  const int input_lengths = reader.buffer(2), target_lengths = reader.buffer(3);
  const std::int64_t blank = reader.integer(4);
  const int losses = reader.output(0), gradients = reader.output(1);
  MOTLEY_RETURN_IF_ERROR(reader.status());
  return [=](Frame& frame) {
    const at::Tensor &given = frame.values[x], &wanted = frame.values[targets];
    if (given.size(1) == 0) {  // a device without samples
      frame.values[losses] = at::empty({0}, given.options());
      frame.values[gradients] = at::empty_like(given);
      return;
    }
    const auto times = integers_of(frame.values[input_lengths]);
    const auto lengths = integers_of(frame.values[target_lengths]);
    const auto [made, alpha] = at::_ctc_loss(given, wanted, times, lengths, blank);
    frame.values[losses] = made;
    frame.values[gradients] =
        at::_ctc_loss_backward(at::ones_like(made), given, wanted, times, lengths, made, alpha,
                               blank, /*zero_infinity=*/true);
  };
}

using Factory = Result<Kernel> (*)(InstructionReader&, at::Device);
constexpr std::array<std::pair<std::string_view, Factory>, 31> kOperators = {{
    {"motley::load", make_load},
    {"motley::tangent", make_tangent},
    {"motley::stop_request", make_stop_request},
    {"motley::ballot", make_ballot},
    {"motley::dropout", make_dropout},
    {"motley::random", make_random},
    {"motley::attention", make_attention},
    {"motley::attention_backward", make_attention_backward},
    {"motley::label_count", make_label_count},
    {"motley::ctc_loss", make_ctc_loss},
    {"motley::batch_norm_sums", make_batch_norm_sums},
    {"motley::batch_norm", make_batch_norm},
    {"motley::batch_norm_backward_sums", make_batch_norm_backward_sums},
    {"motley::batch_norm_backward", make_batch_norm_backward},
    {"motley::pack", make_pack},
    {"motley::unpack", make_unpack},
    {"motley::cut", make_cut},
    {"motley::join", make_join},
    {"motley::part", make_part},
    {"motley::take", make_take},
    {"motley::put", make_put},
    {"motley::update", make_update},
    {"motley::direction", make_direction},
    {"motley::orthogonalize", make_orthogonalize},
    {"motley::apply", make_apply},
    {"motley::square_sums", make_square_sums},
    {"motley::scaled_square_sums", make_scaled_square_sums},
    {"motley::gradient_factor", make_gradient_factor},
    {"motley::average", make_average},
    {"motley::assign", make_assign},
    {"motley::report", make_report},
}};

const Factory* find_factory(std::string_view op) {
  for (const auto& entry : kOperators)
    if (entry.first == op) return &entry.second;
  return nullptr;
}

}  // namespace

bool is_our_operator(std::string_view op) { return find_factory(op) != nullptr; }

Result<Kernel> make_our_operator(const program::DeviceProgram& program,
                                 const program::Instruction& instruction, at::Device device) {
  const Factory* factory = find_factory(instruction.op);
  MOTLEY_CHECK(factory != nullptr);
  InstructionReader reader(program, instruction);
  return (*factory)(reader, device);
}

}  // namespace motley::run
