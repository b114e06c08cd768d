#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace motley::peers {

/// How the devices of one group hold a tensor T; with the tensor it is a *property*, the atom of
/// pre- and post-conditions. From HAP (EuroSys 2024) and its released planner.
class HapForm {
 public:
  static constexpr std::size_t kMaxRank = 12;

  /// Every device holds all of T.
  static constexpr HapForm identity() { return HapForm(0); }
  /// Every device holds a partial term; their sum is T.
  static constexpr HapForm reduce() { return HapForm(1); }
  /// Every device holds all of a parameter T, and its consumer makes the whole gradient on each
  /// (sufficient factors), so that nothing is summed.
  static constexpr HapForm factored() { return HapForm(2); }
  /// Device i holds slice i along `dimension` < kMaxRank; the slices side by side are T.
  static constexpr HapForm gather(std::size_t dimension) {
    return HapForm(static_cast<std::uint8_t>(kFirstGather + dimension));
  }

  constexpr bool is_gather() const { return code_ >= kFirstGather; }
  /// Only of a gather.
  constexpr std::size_t dimension() const { return code_ - kFirstGather; }
  constexpr std::uint16_t bit() const { return static_cast<std::uint16_t>(1u << code_); }
  /// "identity", "reduce", "factored", "gather(1)".
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
