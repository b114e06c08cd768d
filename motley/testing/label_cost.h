#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "motley/base/text.h"
#include "motley/cost/cost_model.h"

namespace motley::testing {

/// A cost model given by the program: a compute instruction takes its label's nanoseconds ("100"; 0
/// without a number), a collective `latency` plus a nanosecond per byte, all times `scale`.
class LabelCost : public cost::CostModel {
 public:
  explicit LabelCost(std::int64_t latency, double scale = 1) : latency_(latency), scale_(scale) {}

  Result<Times> times(const program::DeviceProgram& program) const override {
    Times times;
    for (const program::Instruction& instruction : program.instructions)
      times.seconds.push_back(nanoseconds(find_integer(instruction.label).value_or(0)));
    return times;
  }

  Result<Seconds> collective_time(std::string_view, Bytes bytes,
                                  const std::vector<std::string>&) const override {
    return nanoseconds(latency_ + bytes.value);
  }

 private:
  Seconds nanoseconds(std::int64_t count) const {
    return Seconds(static_cast<double>(count) * scale_ / 1e9);
  }

  std::int64_t latency_;
  double scale_;
};

}  // namespace motley::testing
