#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "motley/synth/step/arguments.h"
#include "motley/synth/step/sharding.h"

namespace motley::synth {

/// What devices have of each extent, by rank; the same for all of them.
class Parts {
 public:
  /// The shares must outlive it.
  explicit Parts(const std::vector<double>& shares);
  std::size_t ranks() const { return shares_.size(); }
  const Shape& of(std::int64_t extent);
  /// Where a rank's part begins.
  std::int64_t begin(std::int64_t extent, std::size_t rank);
  /// The rank that keeps what must count once: the one with the largest share.
  std::size_t keeper() const { return keeper_; }

 private:
  const std::vector<double>& shares_;
  const std::size_t keeper_;
  std::map<std::int64_t, Shape> of_;  // by extent
};

/// Where a rank stands in a sharded step. It remembers what it was asked, and a rank's program is a
/// function of the answers alone: ranks that would get the same ones have the same program, which
/// is then lowered once.
class Place {
 public:
  /// `parts` must outlive it.
  Place(Parts& parts, std::size_t rank) : parts_(&parts), rank_(rank) {}

  std::size_t rank() const { return rank_; }
  Parts& parts() const { return *parts_; }
  /// What is here of an extent, and where that begins.
  std::int64_t own(std::int64_t extent);
  std::int64_t begin(std::int64_t extent);
  bool is_keeper();

  /// All of the program, or what it takes: where a part begins changes a number in it and no time.
  enum class Identical : std::uint8_t { kProgram, kTimes };
  /// Would this rank have got the same answers?
  bool answers_identical(std::size_t rank, Identical what) const;

 private:
  Parts* parts_;
  std::size_t rank_;
  std::set<std::int64_t> owns_, begins_;  // extents that were asked for
  bool asked_keeper_ = false;
};

}  // namespace motley::synth
