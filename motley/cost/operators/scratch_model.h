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

/// How alike two pieces of work are: exp(-d^2 / 2 h^2), d their distance in (ln flops, ln bytes),
/// h = ln 2 / 2. 1 for the same, 0.14 for twice the bytes, below 1e-4 for a factor of 4.5.
double nearness(const OperatorWork& work, const OperatorWork& other);
/// Of a line fitted to all, beside the nearness of each that was measured.
inline constexpr double kLineWeight = 0.25;

/// Dtypes of the tensors that an operator reads, or of its result if it reads none: bit i for the
/// i-th of DType.
using DTypes = std::uint32_t;
inline DTypes dtypes_with(DTypes some, DType dtype) {
  return some | DTypes(1) << static_cast<unsigned>(dtype);
}

/// Memory that operators need beside their results where they were not measured, from those that
/// were: of the same name and overload that read the same dtypes (a sum of truth values makes
/// numbers of them first, and what adds halves to floats makes floats of the halves; a sum of
/// floats takes nothing), or any if none did.
///
/// Over their bytes b_i lies the line s = fixed + per_byte b, both >= 0, that is nowhere below what
/// was measured and, of these, adds least to it in sum of (line - s_i) / b_i: a buffer of fixed
/// size and a copy of what is read are both on one. What was measured near draws it to itself:
///   s = b (w_0 line / b + sum w_i s_i / b_i) / (w_0 + sum w_i),  w_0 = kLineWeight, w_i the
///   nearness.
class ScratchModel {
 public:
  ScratchModel() = default;
  /// Those that do no work are left out.
  explicit ScratchModel(const std::vector<OpEntry>& entries);

  /// 0 for an operator that was never measured.
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
