#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace motley::peers {

/// How a group's devices hold a tensor T. With the tensor it is a *property*, the atom of pre- and
/// post-conditions. From HAP (EuroSys 2024) and its released planner.
class HapForm {
 public:
  static constexpr std::size_t kMaxRank = 12;

  /// All of T on every device.
  static constexpr HapForm identity() { return HapForm(0); }
  /// A partial term on every device; they sum to T.
  static constexpr HapForm reduce() { return HapForm(1); }
  /// All of T on each device, as is its whole gradient (sufficient factors): nothing is summed.
  static constexpr HapForm factored() { return HapForm(2); }
  /// Slice i along `dimension` < kMaxRank on device i; side by side they are T.
  static constexpr HapForm gather(std::size_t dimension) {
    return HapForm(static_cast<std::uint8_t>(kFirstGather + dimension));
  }

  constexpr bool is_gather() const { return code_ >= kFirstGather; }
  /// Requires is_gather().
  constexpr std::size_t dimension() const { return code_ - kFirstGather; }
  constexpr std::uint16_t bit() const { return static_cast<std::uint16_t>(1u << code_); }
  /// Prints "identity", "reduce", "factored", "gather(1)".
  std::string text() const {
    if (is_gather()) return "gather(" + std::to_string(dimension()) + ")";
    return code_ == 0 ? "identity" : code_ == 1 ? "reduce" : "factored";
  }
  constexpr bool operator==(const HapForm&) const = default;

 private:
  static constexpr std::uint8_t kFirstGather = 3;
  explicit constexpr HapForm(std::uint8_t code) : code_(code) {}
  std::uint8_t code_;
};

/// A set of forms of one tensor, in 15 bits.
struct HapFormSet {
  std::uint16_t bits = 0;

  constexpr bool contains(HapForm form) const { return (bits & form.bit()) != 0; }
  constexpr void insert(HapForm form) { bits |= form.bit(); }
  constexpr bool is_empty() const { return bits == 0; }
};

}  // namespace motley::peers
