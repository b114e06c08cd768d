#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "motley/control/survey/found_links.h"
#include "motley/control/wires.h"

namespace motley::control {

/// Decides what to measure between hosts, given what was measured: pure, so that a network may be
/// real or invented.
///
///   LinkSurvey survey(hosts);
///   while (const auto batch = survey.next()) survey.take(*batch, measure(*batch));
///
/// Up to kMostPaired hosts all pairs. Of more, in turns until nothing is missing: the first two of
/// each group of hosts that look alike with all others of it, the groups' first with each other;
/// then some pairs drawn at random, which may show that a group is none. Then find_loads.
///
/// Pairs without a common host are measured side by side, once each of their hosts was measured
/// alone. What a pair then gets must be, within a tenth, the most that the slower of its hosts ever
/// got; else it is measured again, alone. When that has shown twice that pairs disturb each other,
/// all are measured one after the other. A load below what is expected of its flows alone is
/// measured twice and the larger sum counts: a host that had other work must not look like a
/// switch.
class LinkSurvey {
 public:
  explicit LinkSurvey(std::size_t hosts);

  struct Batch {
    enum class What {
      kPairs,    ///< latency and both ways of each pair, one after the other; all pairs at once
      kTogether  ///< flows, all at once for the same time
    };
    What what = What::kPairs;
    std::vector<WireFlow> flows;  ///< of a pair one
  };
  std::optional<Batch> next();
  /// Of pairs two for each flow of the batch, there and back; else one for each flow, whose latency
  /// is not looked at.
  void take(const Batch& batch, const std::vector<Wire>& measured);

  const Wires& wires() const { return wires_; }
  /// Pairs that were measured, and that are known to be wanted.
  std::size_t done() const { return measured_.size(); }
  std::size_t wanted() const { return measured_.size() + pending_.size() + doubtful_.size(); }

 private:
  using Pair = std::pair<std::size_t, std::size_t>;  // ascending
  void want_pairs();
  void want(std::size_t a, std::size_t b);
  void want_all(const std::vector<std::size_t>& hosts);
  void draw_pairs();
  std::optional<Batch> next_pairs();
  std::optional<Batch> next_load();
  enum class How { kAlone, kBeside };
  void take_pair(const Wire& there, const Wire& back, How how);
  void take_load(Load load);
  void keep(const Wire& there, const Wire& back);
  bool is_low(const Load& load) const;

  Wires wires_;
  std::vector<Pair> pending_;                              // in the order in which they are wanted
  std::vector<std::pair<Pair, BytesPerSecond>> doubtful_;  // and what they got side by side
  std::set<Pair> measured_;
  std::vector<BytesPerSecond> best_;  // of each host
  std::set<std::size_t> known_;       // hosts that were measured alone
  bool has_drawn_ = false;
  int disturbed_ = 0;
  std::vector<Load> low_;  // measured once
};

}  // namespace motley::control
