#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "motley/base/result.h"
#include "motley/synth/ranks/update.h"
#include "motley/synth/stages/gradient_sums.h"
#include "motley/synth/step/rank_step.h"

namespace motley::synth {

/// Sums of gradients over regions that hold the same parameter, each whole or in parts, cut by
/// their own shares. Where the parts of all holders begin and end, a parameter falls into
/// intervals; all devices that have an interval sum it, several intervals of the same devices
/// together (`bucket_bytes`), in the order in which they are there. Of a region whose devices all
/// have the same gradient one gives it, the others zeros; where each has a term all do.
///
/// A device packs a bucket as soon as it has its gradients. The sum begins, on all holders at one
/// place of the step's order, where the last of them has packed: so the transfer lanes of all
/// devices keep to one order, and what is still computed hides the sum. Updates come behind all
/// passes of a device: before, they would only hold up what other regions wait for.
///
/// Of a parameter with owners (plan::Owners) each interval has an owner among its holders.
/// Its bucket is reduce-scattered: every holder gets the sum of what it owns, updates that, and
/// gets the others' new rows. What a device owns of a parameter are rows that follow each other, as
/// its share says, of those that it has.
///
/// Where all own as much the new rows are gathered: both ways the sum and the gather keep every
/// link as busy. Else links that carry much one way are idle the other way, so owners send new rows
/// beside the sums of later buckets: to each other node once, where one device passes them on.
class GradientExchange {
 public:
  using Share = GradientShare;
  /// Where instructions go.
  struct Target {
    Bytes bucket_bytes;
    std::function<RankStep&(std::size_t stage, std::size_t member)> rank;
    std::function<Update&(std::size_t stage, std::size_t member)> update;
    std::function<GroupId(const std::vector<std::size_t>& ranks)> group;
    /// A gradient that is there.
    std::function<BufferId(const Share& share)> gradient;
    /// Position up to which a rank's regions use its transfer lane for their operators.
    std::function<std::int64_t(std::size_t rank)> busy_until;
    /// Shares by rank of parameters with owners (plan::Owners), by name.
    std::map<std::string, std::vector<double>> owners = {};
    /// Nodes by rank; empty: each rank has its own.
    std::vector<std::size_t> nodes = {};
    bool updates_at_once = true;  ///< as soon as gradients are there, not when all are
  };

  /// `step` must outlive it.
  GradientExchange(const StagedStep& step, Target target)
      : step_(step), target_(std::move(target)) {}

  void add(const Share& share);
  /// When all shares are known: what is exchanged together, and when. Usage error
  /// (synth.unsupported) where a parameter is cut along different dimensions. Says to updates which
  /// rows are theirs, so these have not begun.
  Result<void> arrange();
  /// The operators up to this position have been written: writes what can be begun now.
  void begin(std::int64_t position);
  /// All have been: begins the rest and writes updates, first of what one region alone has, then
  /// bucket by bucket; of each whose rows all owners have updated these are gathered.
  void finish();
  /// All updates are written: gathers the rest, and gives every holder its parameter.
  void give_back();
  /// Names of parameters with owners.
  const std::set<std::string>& shared() const { return shared_; }
  /// After `finish`: gradients, or stretches of them, that count on a rank for the norm of all.
  const std::vector<BufferId>& counted(std::size_t rank) { return counted_[rank]; }

 private:
  /// The state of a holder's gradient.
  struct Progress {
    BufferId own;                                ///< its gradient, once it is packed
    std::size_t intervals = 0;                   ///< that it has, or where states are shared owns
    std::map<std::size_t, BufferId> back = {};   ///< of these
    std::map<std::size_t, BufferId> fresh = {};  ///< updated, of all that it has
    bool is_updated() const { return back.size() == intervals; }
  };
  struct Held {
    const SharedGradient& gradient;
    const GradientHolder& holder;
    Progress& progress;
  };
  /// New rows of owners, one interval behind the other.
  struct Arrived {
    std::size_t rank;
    BufferId rows;
    std::vector<std::size_t> intervals;
    std::string label;
  };
  /// Instructions behind a position: a rank packs a bucket, or, after all of these, its sum begins.
  struct Event {
    static constexpr std::size_t kSum = SIZE_MAX;
    std::int64_t position;
    std::size_t bucket, rank;
    auto operator<=>(const Event&) const = default;
  };

  void keep(const Share& share) {
    alone_[{share.bucket, share.stage, share.member}].push_back(share);
  }
  Result<SharedGradient> find_holders(const std::string& name, const std::vector<Share>& shares);
  bool find_owners(const std::string& name, SharedGradient& gradient);
  Held held_on(std::size_t interval, std::size_t rank);
  ProgramBuilder& builder_on(std::size_t interval, std::size_t rank);

  void pack(std::size_t bucket, std::size_t rank);
  BufferId own_gradient(const Held& held);
  BufferId piece_of(const Held& held, std::size_t interval, const std::string& label);
  void sum(std::size_t bucket);
  void take_back(std::size_t bucket);
  void gather_updated();
  void gather(std::size_t bucket);
  void send_updated(std::size_t bucket);
  bool is_even(const SumBucket& bucket) const;
  std::map<std::size_t, std::vector<std::size_t>> by_node(
      const std::vector<std::size_t>& ranks) const;
  ExchangeMethod scatter_method(const SumBucket& bucket) const;
  BufferId updated_rows(std::size_t interval, const std::string& label);
  BufferId join(const Held& held, const std::map<std::size_t, BufferId>& pieces_of,
                const std::string& label);

  const graph::Output& output(const Share& share) const {
    return step_.stages[share.stage].graph.outputs[static_cast<std::size_t>(share.output)];
  }
  ValueId parameter_of(const Share& share) const { return output(share).of; }
  const graph::Value& value_of(const Share& share, ValueId value) const {
    return step_.stages[share.stage].graph.value(value);
  }
  RankStep& rank_of(const Share& share) const { return target_.rank(share.stage, share.member); }
  Update& update_of(const Share& share) const { return target_.update(share.stage, share.member); }

  const StagedStep& step_;
  const Target target_;
  std::vector<std::pair<std::string, std::vector<Share>>> shares_;  // by parameter
  std::map<std::string, std::size_t> places_;                       // of parameters in these
  std::set<std::string> shared_;
  /// By bucket of the region (-1: none), stage and member: what needs no exchange.
  std::map<std::tuple<int, std::size_t, std::size_t>, std::vector<Share>> alone_;
  std::set<std::tuple<std::size_t, std::size_t, std::int64_t>> counted_alone_;  // and output
  std::map<std::size_t, std::vector<BufferId>> counted_;                        // by rank
  GradientSums sums_;
  std::vector<std::vector<Progress>> progress_;  // by gradient and holder
  std::vector<Event> events_;                    // that are left, last first
  std::vector<Arrived> arrived_;
  std::size_t gathered_ = 0;  // buckets whose owners' rows all have
  std::map<std::pair<std::size_t, std::size_t>, BufferId> begun_;  // bucket, rank
};

}  // namespace motley::synth
