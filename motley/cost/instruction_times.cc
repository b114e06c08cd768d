#include "motley/cost/instruction_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>
#include <utility>

#include "motley/base/check.h"
#include "motley/base/random.h"
#include "motley/base/statistics.h"
#include "motley/program/program_text.h"

namespace motley::cost {
namespace {

// Sorts references by batch; they must be lowerings of one kind.
std::vector<const program::DeviceProgram*> sorted_references(
    const std::vector<program::DeviceProgram>& references) {
  MOTLEY_CHECK(!references.empty());
  std::vector<const program::DeviceProgram*> sorted;
  for (const program::DeviceProgram& reference : references) sorted.push_back(&reference);
  std::sort(sorted.begin(), sorted.end(),
            [](const auto* a, const auto* b) { return a->samples < b->samples; });
  for (std::size_t b = 1; b < sorted.size(); ++b) {
    MOTLEY_CHECK(sorted[b - 1]->samples < sorted[b]->samples);
    const auto& first = sorted[0]->instructions;
    const auto& other = sorted[b]->instructions;
    MOTLEY_CHECK(std::equal(first.begin(), first.end(), other.begin(), other.end(),
                            [](const auto& x, const auto& y) {
                              return x.lane == y.lane && x.op == y.op && x.overload == y.overload;
                            }));
  }
  return sorted;
}

tl::unexpected<Error> missing_keys(const std::set<std::string>& keys, const DeviceKey& device) {
  const std::string more =
      keys.size() > 1 ? fmt::format(" and {} more", keys.size() - 1) : std::string();
  return usage_error("cost.missing-profile",
                     fmt::format("no measurement of {}{} on {} with threads = {} and PyTorch {}; "
                                 "run `motley profile` with this model and cluster",
                                 *keys.begin(), more, device.kind, device.threads, device.torch));
}

/// Hashes names, which distinguish a lowering for one device from one for a group with exchanges.
std::uint64_t hash_operators(const program::DeviceProgram& program) {
  std::string names;
  for (const program::Instruction& instruction : program.instructions)
    names += instruction.op + instruction.overload + "\n";
  return hash_bytes(names);
}

/// Returns the mean weighted by time: microsecond operators scatter most and matter least.
double mean_spread(const std::vector<std::optional<TimeSource::Answer>>& answers) {
  double sum = 0, weight = 0;
  for (const auto& answer : answers) {
    if (!answer) continue;
    sum += answer->seconds.value * answer->spread;
    weight += answer->seconds.value;
  }
  return weight > 0 ? sum / weight : 0.0;
}

}  // namespace

Result<InstructionTimes> InstructionTimes::build(
    const std::vector<program::DeviceProgram>& references, const TimeSource& source,
    const DeviceKey& device) {
  const auto sorted = sorted_references(references);
  InstructionTimes times;
  times.operators_ = hash_operators(*sorted[0]);
  times.seconds_.resize(sorted[0]->instructions.size(), std::vector<double>(sorted.size(), 0.0));
  times.scratch_ = times.seconds_;
  std::set<std::string> missing;
  for (std::size_t b = 0; b < sorted.size(); ++b) {
    times.batches_.push_back(static_cast<double>(sorted[b]->samples));
    const auto answers = source.times(*sorted[b]);
    MOTLEY_CHECK(answers.size() == times.seconds_.size());
    for (std::size_t i = 0; i < answers.size(); ++i) {
      if (!answers[i]) {
        missing.insert(program::cost_key(*sorted[b], sorted[b]->instructions[i]));
        continue;
      }
      times.seconds_[i][b] = answers[i]->seconds.value;
      times.scratch_[i][b] = static_cast<double>(answers[i]->scratch.value);
    }
    // At the largest batch: the scatter of short operators is that of the clock.
    if (b + 1 == sorted.size()) times.spread_ = mean_spread(answers);
  }
  if (!missing.empty()) return missing_keys(missing, device);
  // More samples cannot take less time: a decrease is noise, which a planner would exploit. Scratch
  // may decrease: a kernel for larger sizes may need less.
  for (std::vector<double>& seconds : times.seconds_) {
    make_nondecreasing(seconds);
    times.slopes_.push_back(times.slope_beyond(seconds));
  }
  return times;
}

bool InstructionTimes::fits(const program::DeviceProgram& program) const {
  return program.instructions.size() == size() && hash_operators(program) == operators_;
}

Seconds InstructionTimes::at(std::size_t instruction, double samples) const {
  return Seconds(within(seconds_[instruction], samples) + slopes_[instruction] * beyond(samples));
}

Bytes InstructionTimes::scratch_at(std::size_t instruction, double samples) const {
  const std::vector<double>& scratch = scratch_[instruction];
  const double bytes = within(scratch, samples) + slope_beyond(scratch) * beyond(samples);
  return Bytes(static_cast<std::int64_t>(std::ceil(std::max(0.0, bytes))));
}

std::vector<Bytes> InstructionTimes::scratch_bytes(std::int64_t samples) const {
  std::vector<Bytes> bytes;
  for (std::size_t i = 0; i < size(); ++i)
    bytes.push_back(scratch_at(i, static_cast<double>(samples)));
  return bytes;
}

Seconds InstructionTimes::total(double samples) const {
  Seconds sum;
  for (std::size_t i = 0; i < size(); ++i) sum += at(i, samples);
  return sum;
}

InstructionTimes InstructionTimes::slowed(const Pace& pace) const {
  InstructionTimes slow = *this;
  for (std::size_t b = 0; b < batches_.size(); ++b) {
    const double speed = pace.at(total(batches_[b]));
    for (std::vector<double>& seconds : slow.seconds_) seconds[b] /= speed;
  }
  // An operator that hardly grows takes less time where the pace rises. Beyond the last batch the
  // pace is constant and nothing decreases: the slope there is that at full speed.
  const double last = pace.at(total(batches_.back()));
  for (double& slope : slow.slopes_) slope /= last;
  return slow;
}

double InstructionTimes::within(const std::vector<double>& values, double samples) const {
  // Not proportional below: launches and fixed parts do not shrink with the samples.
  if (samples <= batches_.front()) return values.front();
  const auto next = std::lower_bound(batches_.begin(), batches_.end(), samples);
  if (next == batches_.end()) return values.back();
  const auto right = static_cast<std::size_t>(next - batches_.begin());
  const double share = (samples - batches_[right - 1]) / (batches_[right] - batches_[right - 1]);
  return values[right - 1] + share * (values[right] - values[right - 1]);
}

double InstructionTimes::slope_beyond(const std::vector<double>& values) const {
  const std::size_t last = batches_.size() - 1;
  // At most proportional: two noisy points could otherwise give any slope for large batches.
  const double proportion = values[last] / batches_[last];
  if (last == 0) return proportion;
  return std::min(proportion,
                  (values[last] - values[last - 1]) / (batches_[last] - batches_[last - 1]));
}

double InstructionTimes::beyond(double samples) const {
  return std::max(0.0, samples - batches_.back());
}

}  // namespace motley::cost
