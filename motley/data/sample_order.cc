#include <array>
#include <bit>
#include <cstdint>

#include "motley/base/check.h"
#include "motley/base/random.h"
#include "motley/data/dataset.h"

namespace motley::data {
namespace {

constexpr std::uint32_t kRounds = 8;

/// Permutes [0, 4^half_bits).
class Feistel {
 public:
  Feistel(int half_bits, std::uint64_t seed, std::uint64_t epoch)
      : half_bits_(half_bits),
        mask_((std::uint64_t{1} << half_bits) - 1),
        key_{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
        epoch_{static_cast<std::uint32_t>(epoch), static_cast<std::uint32_t>(epoch >> 32)} {}

  std::uint64_t at(std::uint64_t value) const {
    std::uint64_t left = value >> half_bits_, right = value & mask_;
    for (std::uint32_t round = 0; round < kRounds; ++round) {
      // Halves have at most 31 bits, so one word of the counter holds them.
      const auto word =
          philox4x32({static_cast<std::uint32_t>(right), round, epoch_[0], epoch_[1]}, key_)[0];
      const std::uint64_t next = left ^ (word & mask_);
      left = right;
      right = next;
    }
    return left << half_bits_ | right;
  }

 private:
  int half_bits_;
  std::uint64_t mask_;
  std::array<std::uint32_t, 2> key_, epoch_;
};

}  // namespace

SampleOrder::SampleOrder(std::int64_t samples, std::optional<std::uint64_t> shuffle_seed)
    : samples_(samples), seed_(shuffle_seed) {
  MOTLEY_CHECK(samples > 0 && samples <= std::int64_t{1} << 62);
}

std::int64_t SampleOrder::at(std::int64_t position) const {
  MOTLEY_CHECK(position >= 0);
  const std::int64_t place = position % samples_;
  if (!seed_ || samples_ == 1) return place;
  const auto count = static_cast<std::uint64_t>(samples_);
  const int half_bits = (std::bit_width(count - 1) + 1) / 2;
  const Feistel permutation(half_bits, *seed_, static_cast<std::uint64_t>(position / samples_));
  std::uint64_t sample = permutation.at(static_cast<std::uint64_t>(place));
  while (sample >= count) sample = permutation.at(sample);
  return static_cast<std::int64_t>(sample);
}

}  // namespace motley::data
