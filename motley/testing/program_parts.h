#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "motley/base/random.h"
#include "motley/program/program.h"

namespace motley::testing {

/// A leading dimension kBatch becomes each device's samples.
constexpr std::int64_t kBatch = -1;

/// Draws an argument of any kind; lists nest to `depth`. Buffers are from `ready`.
inline program::Argument draw_argument(SplitMix64& random, const std::vector<BufferId>& ready,
                                       int depth) {
  static const double floats[] = {0.1,          -2.0, 1e-30,
                                  std::nan(""), -0.0, std::numeric_limits<double>::infinity()};
  switch (random.below(depth > 0 ? 11 : 10)) {
    case 0:
      return {NoneArgument{}};
    case 1:
      return {random.below(2) == 0};
    case 2:
      return {static_cast<std::int64_t>(random.next())};
    case 3:
      return {floats[random.below(6)]};
    case 4:
      return {std::string("a \"b\" \\ \n, [(")};
    case 5:
      return {program::NumberArgument{floats[random.below(6)]}};
    case 6:
      return {program::NumberArgument{static_cast<std::int64_t>(random.below(100))}};
    case 7:
      return {KeywordArgument{random.below(2) == 0 ? "dtype" : "device", "f32"}};
    case 8:
      return {ready[random.below(ready.size())]};
    case 9:
      return {ComplexArgument{floats[random.below(6)], floats[random.below(6)]}};
    default:
      break;
  }
  program::ArgumentList list;
  for (std::size_t i = random.below(4); i > 0; --i)
    list.push_back(draw_argument(random, ready, depth - 1));
  return {std::move(list)};
}

/// Copies the drawn program to each device, with its own share of the batch.
inline program::Program spread(const program::DeviceProgram& drawn, SplitMix64& random) {
  program::Program result;
  result.model_hash = "0123456789abcdef";
  const std::size_t devices = 1 + random.below(4);
  for (std::size_t rank = 0; rank < devices; ++rank) {
    program::DeviceProgram& device = result.devices.emplace_back(drawn);
    device.device = "n\"" + std::to_string(rank) + ":0";
    device.first_sample = result.global_batch;
    device.samples = static_cast<std::int64_t>(1 + random.below(30));
    result.global_batch += device.samples;
    for (program::Buffer& buffer : device.buffers)
      for (std::int64_t& extent : buffer.shape)
        if (extent == kBatch) extent = device.samples;
  }
  result.groups.resize(2);
  for (std::size_t rank = 0; rank < devices; ++rank)
    result.groups[0].members.emplace_back(static_cast<std::int64_t>(rank));
  result.groups[1].members = result.groups[0].members;
  std::reverse(result.groups[1].members.begin(), result.groups[1].members.end());
  return result;
}

}  // namespace motley::testing
