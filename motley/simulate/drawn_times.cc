#include "motley/simulate/drawn_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>
#include <utility>

#include "motley/base/random.h"

namespace motley::simulate {
namespace {

constexpr double kLatest = 1e9;
constexpr std::uint32_t kWholeStep = UINT32_MAX;  // in place of an instruction

/// Returns four independent standard normal numbers for a counter and key (Box and Muller, 1958).
std::array<double, 4> draw_normals(std::array<std::uint32_t, 4> counter,
                                   std::array<std::uint32_t, 2> key) {
  const std::array<std::uint32_t, 4> words = philox4x32(counter, key);
  std::array<double, 4> normals;
  for (std::size_t i = 0; i < 4; i += 2) {
    const double radius = std::sqrt(-2 * std::log((words[i] + 1.0) * 0x1p-32));
    const double angle = 2 * std::numbers::pi * words[i + 1] * 0x1p-32;
    normals[i] = radius * std::cos(angle);
    normals[i + 1] = radius * std::sin(angle);
  }
  return normals;
}

/// Turns a standard normal number into a lognormal factor of mean 1.
class Factor {
 public:
  explicit Factor(double relative_deviation)
      : deviation_(std::sqrt(std::log1p(relative_deviation * relative_deviation))) {}
  double of(double normal) const {
    return std::exp(deviation_ * normal - deviation_ * deviation_ / 2);
  }
  bool is_exact() const { return deviation_ == 0; }
  /// draw_normals stays below sqrt(64 ln 2).
  double most() const { return of(6.7); }

 private:
  double deviation_;
};

// ---- checks

/// Reports the first violation, named as in the conditions.
class ConditionsCheck {
 public:
  ConditionsCheck(const std::vector<std::string>& devices, std::string_view whose)
      : devices_(devices.begin(), devices.end()), whose_(whose) {}

  Result<void> check(const Conditions& conditions) const {
    for (const auto& [device, jitter] : conditions.jitter) {
      MOTLEY_RETURN_IF_ERROR(check_device("jitter", device));
      for (const double deviation : {jitter.per_instruction, jitter.per_step})
        if (!(deviation >= 0 && deviation <= 10))
          return fault("jitter", device, "a relative standard deviation", deviation, "0 to 10");
    }
    for (const SlowDown& slow : conditions.slow_downs) {
      MOTLEY_RETURN_IF_ERROR(check_span("slow-down", slow.device, slow.from, slow.until));
      if (!(slow.factor > 0 && slow.factor <= 1e6))
        return fault("slow-down", slow.device, "a factor", slow.factor, "above 0, up to 1e6");
    }
    if (!conditions.faults.empty())
      return usage_error("simulate.conditions",
                         "faults: at an instruction of '" + conditions.faults[0].device +
                             "': they are for runs; a simulation has absences");
    for (const Absence& absence : conditions.absences)
      MOTLEY_RETURN_IF_ERROR(check_span("absence", absence.device, absence.from, absence.until));
    return check_recovery(conditions.recovery);
  }

 private:
  static tl::unexpected<Error> fault(std::string_view what, const std::string& device,
                                     std::string_view number, double found,
                                     std::string_view wanted) {
    return usage_error("simulate.conditions", fmt::format("{} of {}: found {} of {}, wanted {}",
                                                          what, device, number, found, wanted));
  }

  Result<void> check_device(std::string_view what, const std::string& device) const {
    if (devices_.contains(device)) return {};
    return usage_error("simulate.conditions",
                       fmt::format("{} of {}: {} has no such device", what, device, whose_));
  }

  Result<void> check_span(std::string_view what, const std::string& device, Seconds from,
                          Seconds until) const {
    MOTLEY_RETURN_IF_ERROR(check_device(what, device));
    if (!(from.value >= 0 && from.value <= kLatest))
      return fault(what, device, "a begin", from.value, "0 to 1e9 s");
    if (!(until > from)) return fault(what, device, "an end", until.value, "one after its begin");
    return {};
  }

  static Result<void> check_recovery(const Recovery& recovery) {
    for (const Seconds time : {recovery.detection, recovery.restart})
      if (!(time.value >= 0 && time.value <= kLatest))
        return usage_error(
            "simulate.conditions",
            fmt::format("recovery: found a time of {} s, wanted 0 to 1e9", time.value));
    if (recovery.checkpoint_every < 1)
      return usage_error(
          "simulate.conditions",
          fmt::format("recovery: found a checkpoint every {} steps, wanted 1 or more",
                      recovery.checkpoint_every));
    return {};
  }

  std::set<std::string_view> devices_;
  std::string_view whose_;
};

std::vector<Stretch> stretches_of(const std::vector<SlowDown>& slow_downs,
                                  const std::string& device) {
  std::vector<Nanoseconds> times;
  for (const SlowDown& slow : slow_downs)
    if (slow.device == device)
      for (const Seconds time : {slow.from, slow.until}) times.push_back(whole_nanoseconds(time));
  std::sort(times.begin(), times.end());
  times.erase(std::unique(times.begin(), times.end()), times.end());
  std::vector<Stretch> pieces;
  for (const Nanoseconds time : times) {
    Stretch& piece = pieces.emplace_back(Stretch{time, 1});
    for (const SlowDown& slow : slow_downs)
      if (slow.device == device && whole_nanoseconds(slow.from) <= time &&
          time < whole_nanoseconds(slow.until))
        piece.factor *= slow.factor;
  }
  return pieces;
}

}  // namespace

Nanoseconds whole_nanoseconds(Seconds time) {
  return static_cast<Nanoseconds>(std::llround(std::min(time.value, kLatest) * 1e9));
}

std::array<std::uint32_t, 2> draw_key(std::uint64_t seed, std::int64_t run) {
  SplitMix64 random(seed + static_cast<std::uint64_t>(run) * 0x9e3779b97f4a7c15U);
  const std::uint64_t key = random.next();
  return {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)};
}

void DrawnTimes::draw(const std::array<std::uint32_t, 2>& key, const DrawPlace& place,
                      std::span<const Nanoseconds> exact, std::span<Nanoseconds> drawn) const {
  const Factor of_step(jitter_.per_step), of_instruction(jitter_.per_instruction);
  std::array<std::uint32_t, 4> counter = {kWholeStep, place.step, place.device, place.attempt};
  const double whole = of_step.is_exact() ? 1 : of_step.of(draw_normals(counter, key)[0]);
  std::array<double, 4> normals{};
  for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
    if (i % 4 == 0 && !of_instruction.is_exact()) {
      counter[0] = static_cast<std::uint32_t>(i / 4);
      normals = draw_normals(counter, key);
    }
    if (program::is_exchange(program_.instructions[i])) continue;
    const std::size_t task = tasks_[i].index();
    const double factor = of_instruction.is_exact() ? 1 : of_instruction.of(normals[i % 4]);
    drawn[task] = std::llround(static_cast<double>(exact[task]) * whole * factor);
  }
}

std::vector<std::vector<Stretch>> find_stretches(const program::Program& program,
                                                 const std::vector<SlowDown>& slow_downs,
                                                 std::size_t lanes) {
  std::vector<std::vector<Stretch>> stretches;
  if (slow_downs.empty()) return stretches;
  for (const program::DeviceProgram& device : program.devices)
    stretches.insert(stretches.end(), 2, stretches_of(slow_downs, device.device));
  stretches.resize(lanes);
  return stretches;
}

double most_factor(const Conditions& conditions) {
  double jitter = 1, stretched = 1;
  for (const auto& [device, of_device] : conditions.jitter)
    jitter = std::max(jitter,
                      Factor(of_device.per_instruction).most() * Factor(of_device.per_step).most());
  for (const SlowDown& slow : conditions.slow_downs) stretched *= std::max(1.0, slow.factor);
  return jitter * stretched;
}

Result<void> check_conditions(const Conditions& conditions, const std::vector<std::string>& devices,
                              std::string_view whose) {
  return ConditionsCheck(devices, whose).check(conditions);
}

}  // namespace motley::simulate
