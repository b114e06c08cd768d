#include "motley/cost/operators/scratch_model.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <optional>

namespace motley::cost {
namespace {

constexpr double kBandwidth = 0.3466;  // ln 2 / 2

double ln(double value) { return std::log(std::max(value, 1.0)); }

/// Returns the dtypes of tensors in a key of program::cost_key: "aten::add.Tensor(f32[2], i64[2],
/// 1)", "motley::pack(bf16+f32, 20 elements, 2 tensors)"; not the one in "dtype(f32)".
DTypes reads_of(std::string_view key) {
  const auto is_letter = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  DTypes reads = 0;
  auto at = std::find(key.begin(), key.end(), '(');
  while (at != key.end()) {
    const auto begin = std::find_if(at, key.end(), is_letter);
    at = std::find_if_not(begin, key.end(), is_letter);
    if (at == key.end() || std::string_view("[+,").find(*at) == std::string_view::npos) continue;
    const auto found = find_dtype(std::string(begin, at));
    if (found && *found != DType::kNone) reads = dtypes_with(reads, *found);
  }
  return reads;
}

}  // namespace

double nearness(const OperatorWork& work, const OperatorWork& other) {
  const double flops = ln(work.flops) - ln(other.flops), bytes = ln(work.bytes) - ln(other.bytes);
  return std::exp(-(flops * flops + bytes * bytes) / (2 * kBandwidth * kBandwidth));
}

void ScratchModel::Line::fit() {
  // The line's two numbers are a linear program in two unknowns, whose optimum is a corner: a level
  // line, one through the origin, or one through two neighbours of the upper hull.
  std::vector<std::pair<double, double>> points, hull;
  double inverse_bytes = 0;
  for (const Sample& sample : samples) {
    points.emplace_back(sample.work.bytes, sample.scratch);
    inverse_bytes += 1 / sample.work.bytes;
    fixed = std::max(fixed, sample.scratch);
  }
  const auto count = static_cast<double>(samples.size());
  double least = fixed * inverse_bytes;
  const auto try_line = [&](double level, double slope) {
    const double sum = level * inverse_bytes + slope * count;
    if (level < 0 || slope < 0 || sum > least * (1 + 1e-9)) return;
    least = sum, fixed = level, per_byte = slope;
  };
  // A single measurement fits both; a proportional line is the larger guess for larger work.
  double steepest = 0;
  for (const auto& [bytes, scratch] : points) steepest = std::max(steepest, scratch / bytes);
  try_line(0, steepest);
  std::sort(points.begin(), points.end());
  for (const auto& point : points) {
    // Removes the last hull point while it lies on or below the line around it.
    while (hull.size() >= 2) {
      const auto& [b0, s0] = hull[hull.size() - 2];
      const auto& [b1, s1] = hull.back();
      if ((s1 - s0) * (point.first - b0) > (point.second - s0) * (b1 - b0)) break;
      hull.pop_back();
    }
    if (!hull.empty() && hull.back().first == point.first) hull.pop_back();
    hull.push_back(point);
  }
  for (std::size_t i = 1; i < hull.size(); ++i) {
    const double slope =
        (hull[i].second - hull[i - 1].second) / (hull[i].first - hull[i - 1].first);
    try_line(hull[i].second - slope * hull[i].first, slope);
  }
}

ScratchModel::ScratchModel(const std::vector<OpEntry>& entries) {
  for (const OpEntry& entry : entries) {
    if (entry.work.launches == 0 || !(entry.work.bytes > 0)) continue;
    Operator& known = operators_[entry.key.substr(0, entry.key.find('('))];
    const Sample sample{entry.work, static_cast<double>(entry.scratch.value)};
    known.by_dtypes[reads_of(entry.key)].samples.push_back(sample);
    known.all.samples.push_back(sample);
  }
  for (auto& [name, known] : operators_) {
    known.all.fit();
    for (auto& [dtypes, line] : known.by_dtypes) line.fit();
  }
}

Bytes ScratchModel::scratch(std::string_view name, DTypes reads, const OperatorWork& work) const {
  const auto known = operators_.find(name);
  if (known == operators_.end() || !(work.bytes > 0)) return Bytes(0);
  const auto identical = known->second.by_dtypes.find(reads);
  const Line& line =
      identical == known->second.by_dtypes.end() ? known->second.all : identical->second;
  double sum = kLineWeight * (line.fixed / work.bytes + line.per_byte), weight = kLineWeight;
  for (const Sample& sample : line.samples) {
    const double near = nearness(work, sample.work);
    sum += near * sample.scratch / sample.work.bytes;
    weight += near;
  }
  return Bytes(static_cast<std::int64_t>(sum / weight * work.bytes));
}

}  // namespace motley::cost
