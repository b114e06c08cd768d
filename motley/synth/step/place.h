#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "motley/synth/step/arguments.h"
#include "motley/synth/step/sharding.h"

namespace motley::synth {

/// The devices' parts of each extent, by rank.
class Parts {
 public:
  /// The shares must outlive it.
  explicit Parts(const std::vector<double>& shares);
  std::size_t ranks() const { return shares_.size(); }
  const Shape& of(std::int64_t extent);
  /// Returns the begin of a rank's part.
  std::int64_t begin(std::int64_t extent, std::size_t rank);
  /// Returns the rank with the largest share, which provides what must count once.
  std::size_t keeper() const { return keeper_; }

 private:
  const std::vector<double>& shares_;
  const std::size_t keeper_;
  std::map<std::int64_t, Shape> of_;  // by extent
};

/// A rank's place in a sharded step. It records queries: a rank's program is a function of their
/// answers alone, so ranks with the same answers share a program that is lowered once.
class Place {
 public:
  /// `parts` must outlive it.
  Place(Parts& parts, std::size_t rank) : parts_(&parts), rank_(rank) {}

  std::size_t rank() const { return rank_; }
  Parts& parts() const { return *parts_; }
  /// Size and begin of the local part of an extent.
  std::int64_t own(std::int64_t extent);
  std::int64_t begin(std::int64_t extent);
  bool is_keeper();

  /// The program, or its times alone, which do not depend on where a part begins.
  enum class Identical : std::uint8_t { kProgram, kTimes };
  /// Would this rank get the same answers?
  bool answers_identical(std::size_t rank, Identical what) const;

 private:
  Parts* parts_;
  std::size_t rank_;
  std::set<std::int64_t> owns_, begins_;  // queried extents
  bool asked_keeper_ = false;
};

}  // namespace motley::synth
