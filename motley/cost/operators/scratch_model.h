#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "motley/base/dtype.h"
#include "motley/base/units.h"
#include "motley/cost/measured/operator_work.h"
#include "motley/cost/measured/profile_store.h"

namespace motley::cost {

/// Returns how similar two pieces of work are: exp(-d^2 / 2 h^2), d their distance in (ln flops, ln
/// bytes), h = ln 2 / 2. 1 if equal, 0.14 for twice the bytes, below 1e-4 for a factor of 4.5.
double nearness(const OperatorWork& work, const OperatorWork& other);
/// Weight of the line fitted to all, relative to the nearness of each measurement.
inline constexpr double kLineWeight = 0.25;

/// Dtypes of the tensors that an operator reads, else of its result: bit i for the i-th of DType.
using DTypes = std::uint32_t;
inline DTypes dtypes_with(DTypes some, DType dtype) {
  return some | DTypes(1) << static_cast<unsigned>(dtype);
}

/// Memory of unmeasured operators besides their results, from measured ones of the same name,
/// overload and dtypes read, or any dtypes. Sums of truth values first convert them to numbers,
/// additions of halves to floats convert the halves, sums of floats need nothing.
///
/// Over their bytes b_i the line s = fixed + per_byte b, both >= 0, is nowhere below a measurement
/// and, of all such lines, has the least sum of (line - s_i) / b_i: a buffer of fixed size and a
/// copy of what is read are both on one. Near measurements pull the result:
///   s = b (w_0 line / b + sum w_i s_i / b_i) / (w_0 + sum w_i),
/// with w_0 = kLineWeight and w_i the nearness.
class ScratchModel {
 public:
  ScratchModel() = default;
  /// Leaves out operators without work.
  explicit ScratchModel(const std::vector<OpEntry>& entries);

  /// Returns 0 for an operator that was never measured.
  Bytes scratch(std::string_view name, DTypes reads, const OperatorWork& work) const;

 private:
  struct Sample {
    OperatorWork work;
    double scratch;  // bytes
  };
  struct Line {
    double fixed = 0, per_byte = 0;
    std::vector<Sample> samples;
    void fit();
  };
  struct Operator {
    std::map<DTypes, Line> by_dtypes;
    Line all;
  };
  std::map<std::string, Operator, std::less<>> operators_;
};

}  // namespace motley::cost
