#include "motley/cost/measured/whole_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "motley/base/statistics.h"
#include "motley/base/text.h"

namespace motley::cost {
namespace {

constexpr std::string_view kStep = "step ", kCompute = "compute ",
                           kPause = "pause ";  // prefixes of the keys

OpEntry entry_of(std::string_view what, const DeviceKey& key, const std::string& subject,
                 std::int64_t samples) {
  OpEntry entry;
  entry.device = key;
  entry.key = fmt::format("{}{} {}", what, subject, samples);
  return entry;
}

}  // namespace

OpEntry step_entry(const DeviceKey& key, const std::string& subject, std::int64_t samples) {
  return entry_of(kStep, key, subject, samples);
}

OpEntry compute_entry(const DeviceKey& key, const std::string& subject, std::int64_t samples) {
  return entry_of(kCompute, key, subject, samples);
}

OpEntry pause_entry(const DeviceKey& key, const std::string& subject, std::int64_t samples) {
  return entry_of(kPause, key, subject, samples);
}

Result<Seconds> find_pause(const ProfileStore& store, const DeviceKey& key,
                           const std::string& subject) {
  MOTLEY_ASSIGN(const std::vector<OpEntry> entries, store.ops(key));
  const std::string prefix = fmt::format("{}{} ", kPause, subject);
  std::vector<double> own, all;
  for (const OpEntry& entry : entries) {
    if (!entry.key.starts_with(kPause)) continue;
    all.push_back(entry.median.value);
    if (entry.key.starts_with(prefix)) own.push_back(entry.median.value);
  }
  if (all.empty()) return Seconds(0);
  return Seconds(median(own.empty() ? std::move(all) : std::move(own)));
}

Result<std::optional<double>> usual_pace(const ProfileStore& store, const DeviceKey& key) {
  MOTLEY_ASSIGN(const std::vector<OpEntry> entries, store.ops(key));
  std::map<std::string, double, std::less<>> steps;
  for (const OpEntry& entry : entries)
    if (entry.key.starts_with(kStep)) steps[entry.key.substr(kStep.size())] = entry.median.value;
  std::vector<double> paces;
  for (const OpEntry& entry : entries) {
    if (!entry.key.starts_with(kCompute)) continue;
    const auto step = steps.find(std::string_view(entry.key).substr(kCompute.size()));
    if (step != steps.end() && step->second > 0) paces.push_back(entry.median.value / step->second);
  }
  if (paces.empty()) return std::nullopt;
  return median(std::move(paces));
}

Result<std::vector<StepTime>> find_steps(const ProfileStore& store, const DeviceKey& key,
                                         const std::string& subject) {
  MOTLEY_ASSIGN(const std::vector<OpEntry> entries, store.ops(key));
  const std::string prefix = fmt::format("{}{} ", kStep, subject);
  std::vector<StepTime> steps;
  for (const OpEntry& entry : entries) {
    if (!entry.key.starts_with(prefix)) continue;
    const auto samples = find_integer(std::string_view(entry.key).substr(prefix.size()));
    if (samples && entry.median.value > 0) steps.push_back({*samples, entry.median, entry.spread});
  }
  std::sort(steps.begin(), steps.end(),
            [](const StepTime& a, const StepTime& b) { return a.samples < b.samples; });
  return steps;
}

bool is_whole_step(const OpEntry& entry) {
  return entry.key.starts_with(kStep) || entry.key.starts_with(kCompute) ||
         entry.key.starts_with(kPause);
}

}  // namespace motley::cost
