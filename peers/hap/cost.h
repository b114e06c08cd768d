#pragma once

#include <optional>
#include <vector>

#include "motley/base/units.h"
#include "peers/hap/hap_form.h"
#include "peers/hap/reference_graph.h"
#include "peers/hap/rules.h"

namespace motley::peers {

/// Rates of collectives in bytes per second over the whole tensor; all > 0.
struct CollectiveRates {
  double all_gather = 0;
  double all_reduce = 0;
  double reduce_scatter = 0;
  double all_to_all = 0;
  double grouped_all_gather = 0;      ///< one broadcast per owner; only with `may_group`
  double grouped_reduce_scatter = 0;  ///< one reduction per owner
};

/// Devices and network as HAP sees them: one speed per device, one rate per collective.
struct HapCluster {
  std::vector<double> device_flops;  ///< per second, > 0, at least one device
  CollectiveRates bytes_per_second;
};

/// Each device's share of a split dimension; they sum to 1.
using Shares = std::vector<double>;

Shares proportional_shares(const HapCluster& cluster);

/// The effect of shares on a program's time.
struct ShareEffect {
  double per_shared_flop = 0;  ///< seconds: max over devices of share / speed
  double per_whole_flop = 0;   ///< seconds: 1 / the least speed
  double padding = 0;          ///< devices times the largest share: 1 when even
};
ShareEffect effect_of(const Shares& shares, const HapCluster& cluster);

/// Time of a step or program as a function of the shares. Every step ends with a barrier, so times
/// of steps add. `seconds = shared_flops * per_shared_flop + whole_flops * per_whole_flop +
/// padded_s * padding + constant_s`.
struct LinearTime {
  double shared_flops = 0;
  double whole_flops = 0;
  double padded_s = 0;    ///< of collectives that move devices x the largest shard
  double constant_s = 0;  ///< of collectives that move the whole tensor in any split

  LinearTime& operator+=(const LinearTime& other);
  double seconds(const ShareEffect& effect) const {
    return shared_flops * effect.per_shared_flop + whole_flops * effect.per_whole_flop +
           padded_s * effect.padding + constant_s;
  }
};

struct HapCostOptions {
  /// Released: 1, which divides elements by bytes per second. Repaired: 4, for f32.
  double bytes_per_element = 1;
  /// All-gathers and reduce-scatters may go by owner (grouped) where padding costs more. The
  /// released program uses one way for all and prices the padded one.
  bool may_group = false;
  Seconds latency;  ///< of each collective; released: none
};

/// Prices loading, computing and converting under given shares, forward plus backward.
class HapCost {
 public:
  HapCost(const HapCluster& cluster, const HapCostOptions& options, const Shares& shares);

  const ShareEffect& effect() const { return effect_; }
  /// Prices a load; none if impossible. Only a whole parameter costs, for summing gradients.
  std::optional<LinearTime> load(const ReferenceTensor& tensor, HapForm form) const;
  LinearTime compute(const Triple& triple) const;
  /// Prices a change of form by one collective or local slice; none where no rule allows it:
  ///
  /// | from, to | forward | backward |
  /// | gather(d), identity | all-gather | reduce-scatter |
  /// | identity, gather(d) | slice | nothing |
  /// | reduce, gather(d) | reduce-scatter | all-gather |
  /// | reduce, identity | all-reduce | all-reduce |
  /// | gather(i), gather(j) | all-to-all | all-to-all |
  std::optional<LinearTime> conversion(const ReferenceTensor& tensor, HapForm from,
                                       HapForm to) const;

 private:
  LinearTime whole_collective(double elements, double rate) const;
  LinearTime padded_collective(double elements, double rate, bool is_split) const;
  LinearTime shard_collective(double elements, bool is_split, double rate, double grouped) const;
  LinearTime all_gather(double elements, bool is_split = true) const;
  LinearTime reduce_scatter(double elements, bool is_split) const;

  CollectiveRates rates_;
  HapCostOptions options_;
  double devices_;
  ShareEffect effect_;
};

}  // namespace motley::peers
