#pragma once

#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "motley/base/random.h"
#include "motley/program/program.h"

namespace motley::testing {

/// Returns flat indices of a buffer's tensor elements, in the order of its memory.
inline std::vector<std::int64_t> indices_of(const program::Buffer& buffer) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(buffer.elements()));
  if (!buffer.part) {
    std::iota(indices.begin(), indices.end(), 0);
    return indices;
  }
  const program::Part& part = *buffer.part;
  const std::int64_t count = buffer.elements() / (part.before * part.after);
  indices.clear();
  for (std::int64_t b = 0; b < part.before; ++b)
    for (std::int64_t row = 0; row < count; ++row)
      for (std::int64_t a = 0; a < part.after; ++a)
        indices.push_back((b * part.extent + part.begin + row) * part.after + a);
  return indices;
}

/// Draws the parts of a few tensors that devices hold.
class DrawnForms {
 public:
  explicit DrawnForms(std::uint64_t seed) : random_(seed) {
    for (std::size_t t = 0, count = 1 + random_.below(3); t < count; ++t) {
      std::vector<std::int64_t>& shape = shapes_.emplace_back();
      for (std::uint64_t d = random_.below(4); d > 0; --d) shape.push_back(number(1, 6));
    }
  }

  /// Draws some of five devices.
  program::Program draw() {
    program::Program program;
    program.model_hash = "m";
    for (int d = 0; d < 5; ++d)
      if (random_.below(4) > 0)
        program.devices.emplace_back().device = std::string("d") + std::to_string(d);
    if (program.devices.empty()) program.devices.emplace_back().device = "d0";
    for (std::size_t t = 0; t < shapes_.size(); ++t) draw_tensor(program, t);
    return program;
  }

  std::int64_t number(std::int64_t least, std::int64_t most) {
    return least +
           static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(most - least + 1)));
  }

 private:
  /// Draws a dimension, cut alone or together with the following ones.
  program::Part draw_view(const std::vector<std::int64_t>& shape) {
    std::int64_t all = 1;
    for (const std::int64_t extent : shape) all *= extent;
    const auto draw_divisor = [&](std::int64_t of) {
      std::int64_t divisor = number(1, of);
      while (of % divisor != 0) --divisor;
      return divisor;
    };
    program::Part part;
    if (random_.below(4) == 0) {  // any three factors
      part.before = draw_divisor(all);
      part.extent = draw_divisor(all / part.before);
    } else {
      std::size_t d = shape.empty() ? 0 : random_.below(shape.size());
      for (std::size_t i = 0; i < d; ++i) part.before *= shape[i];
      part.extent = shape.empty() ? 1 : shape[d];
    }
    part.after = all / part.before / part.extent;
    return part;
  }

  void draw_tensor(program::Program& program, std::size_t t) {
    const std::vector<std::int64_t>& shape = shapes_[t];
    const DType dtype = t == 0 ? DType::kF64 : DType::kF32;
    program::Part view = draw_view(shape);
    std::int64_t begin = 0;
    for (program::DeviceProgram& device : program.devices) {
      if (random_.below(6) == 0) {
        view = draw_view(shape);
        begin = 0;
      }
      if (random_.below(6) == 0) continue;
      program::Buffer buffer{t == 1 ? program::BufferKind::kState : program::BufferKind::kParameter,
                             dtype,
                             shape,
                             "t" + std::to_string(t),
                             {},
                             {}};
      if (random_.below(4) > 0) {
        if (random_.below(4) == 0 || begin == view.extent) begin = number(0, view.extent);
        const std::int64_t count = number(0, view.extent - begin);
        buffer.part = view;
        buffer.part->begin = begin;
        buffer.part->is_copy = random_.below(2) == 0;
        buffer.shape = {view.before * count, view.after};
        begin += count;
      }
      device.buffers.push_back(std::move(buffer));
    }
  }

  SplitMix64 random_;
  std::vector<std::vector<std::int64_t>> shapes_;
};

}  // namespace motley::testing
