#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "motley/control/survey/found_links.h"
#include "motley/control/wires.h"

namespace motley::control {

/// Decides the next measurement between hosts from the previous ones. It is pure, so the network
/// may be real or simulated.
///
///   LinkSurvey survey(hosts);
///   while (const auto batch = survey.next()) survey.take(*batch, measure(*batch));
///
/// Up to kMostPaired hosts, it measures all pairs. Among more hosts it repeats, until nothing is
/// missing: the first two of each group of seemingly identical hosts with all others of the group,
/// and the groups' first hosts with each other. Then it measures some random pairs, which may show
/// that a group is not uniform, and finally find_loads.
///
/// Pairs without a common host are measured concurrently, once each of their hosts has been
/// measured alone. A concurrent pair must then get, within a tenth, the best rate of its slower
/// host; otherwise it is measured again alone. When two pairs have shown that they disturb each
/// other, all further ones are measured one by one. A load below the sum of its flows alone is
/// measured twice and the larger sum counts, because a busy host must not look like a switch.
class LinkSurvey {
 public:
  explicit LinkSurvey(std::size_t hosts);

  struct Batch {
    enum class What {
      kPairs,    ///< latency and both directions of each pair in sequence; all pairs at once
      kTogether  ///< all flows at once
    };
    What what = What::kPairs;
    std::vector<WireFlow> flows;  ///< a pair has one
  };
  std::optional<Batch> next();
  /// `measured`: two wires per pair, there and back; one per flow of a load, without latency.
  void take(const Batch& batch, const std::vector<Wire>& measured);

  const Wires& wires() const { return wires_; }
  /// Measured pairs, and pairs known to be needed.
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
  std::vector<Pair> pending_;                              // in the order of measuring
  std::vector<std::pair<Pair, BytesPerSecond>> doubtful_;  // with their concurrent rates
  std::set<Pair> measured_;
  std::vector<BytesPerSecond> best_;
  std::set<std::size_t> known_;  // hosts that were measured alone
  bool has_drawn_ = false;
  int disturbed_ = 0;
  std::vector<Load> low_;  // measured once
};

}  // namespace motley::control
