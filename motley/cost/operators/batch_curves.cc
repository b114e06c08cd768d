#include "motley/cost/operators/batch_curves.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <utility>

#include "motley/program/program_text.h"

namespace motley::cost {
namespace {

/// A cost key as words, with '#' for each whole number, and its numbers.
struct SplitKey {
  std::string words;
  std::vector<double> numbers;
};

SplitKey split_key(const std::string& key) {
  SplitKey split;
  const auto is_digit = [&](std::size_t i) {
    return i < key.size() && std::isdigit(static_cast<unsigned char>(key[i])) != 0;
  };
  for (std::size_t i = 0; i < key.size(); ++i) {
    if (!is_digit(i)) {
      split.words += key[i];
      continue;
    }
    double number = 0;
    for (; is_digit(i); ++i) number = 10 * number + (key[i] - '0');
    --i;
    split.words += '#';
    split.numbers.push_back(number);
  }
  return split;
}

bool is_near(double a, double b) { return std::abs(a - b) < 1e-6 * std::max(1.0, std::abs(b)); }

}  // namespace

BatchCurves::BatchCurves(const std::vector<program::DeviceProgram>& references, At at)
    : at_(std::move(at)) {
  const auto [low, high] =
      std::minmax_element(references.begin(), references.end(),
                          [](const auto& a, const auto& b) { return a.samples < b.samples; });
  least_ = static_cast<double>(low->samples);
  most_ = static_cast<double>(high->samples);
  for (std::size_t i = 0; i < low->instructions.size(); ++i) {
    if (low->instructions[i].lane != Lane::kCompute) continue;
    const SplitKey first = split_key(program::cost_key(*low, low->instructions[i]));
    const SplitKey last = split_key(program::cost_key(*high, high->instructions[i]));
    if (first.words != last.words) continue;  // another kernel at another batch
    Family family{i, {}, {}};
    for (std::size_t n = 0; n < first.numbers.size(); ++n) {
      const double slope =
          most_ > least_ ? (last.numbers[n] - first.numbers[n]) / (most_ - least_) : 0;
      family.slope.push_back(slope);
      family.first.push_back(first.numbers[n] - slope * least_);
    }
    std::vector<Family>& known = by_words_[first.words];
    const bool is_new = std::none_of(known.begin(), known.end(), [&](const Family& other) {
      return other.first == family.first && other.slope == family.slope;
    });
    if (is_new) known.push_back(std::move(family));
  }
}

std::optional<TimeSource::Answer> BatchCurves::find(const std::string& key) const {
  const SplitKey wanted = split_key(key);
  const auto known = by_words_.find(wanted.words);
  if (known == by_words_.end()) return std::nullopt;
  for (const Family& family : known->second) {
    double batch = most_;  // for keys that no batch changes
    for (std::size_t n = 0; n < wanted.numbers.size(); ++n)
      if (family.slope[n] != 0) batch = (wanted.numbers[n] - family.first[n]) / family.slope[n];
    bool fits = batch > 0;
    for (std::size_t n = 0; fits && n < wanted.numbers.size(); ++n)
      fits = is_near(family.first[n] + family.slope[n] * batch, wanted.numbers[n]);
    if (fits) return at_(family.instruction, batch);
  }
  return std::nullopt;
}

std::vector<std::optional<TimeSource::Answer>> BatchCurves::times(
    const program::DeviceProgram& program) const {
  std::vector<std::optional<Answer>> answers;
  answers.reserve(program.instructions.size());
  for (const program::Instruction& instruction : program.instructions)
    answers.push_back(instruction.lane != Lane::kCompute
                          ? Answer{}
                          : find(program::cost_key(program, instruction)));
  return answers;
}

}  // namespace motley::cost
