#pragma once

#include <memory>
#include <span>
#include <vector>

#include "motley/cluster/kinds.h"
#include "motley/cost/operators/kind_times.h"
#include "motley/cost/operators/time_source.h"

namespace motley::cost {

/// Weight of measurements on one kind for another; the rest is the other's data-sheet time. Gives
/// the least mean error over six kinds, each carried from the nearest of the others.
inline constexpr double kCarriedShare = 0.85;

/// One operator on two kinds of device, by their figures (kind_seconds without launch cost).
struct KindRatio {
  Seconds here, there;
};
/// Returns the time there of an operator that took `measured` here, `launch` of it a host cost:
///   launch + share (measured - launch) there / here + (1 - share) there.
/// An operator without a time by figures (`here` is 0: views) keeps its time. A time below a launch
/// is all launch.
///
/// Example: 50 us, 10 of them launch; the figures explain 20, and 10 on a device twice as fast.
/// With share 1/2 it takes 10 + 20 / 2 + 5 = 25 us there.
Seconds carried_seconds(Seconds measured, Seconds launch, const KindRatio& figures,
                        double share = kCarriedShare);

/// Returns |ln(ratio)| of the peak rates in f16, which groups kinds by their programs' bottlenecks.
/// Five others (f32 rate, bandwidth, both and f16, operations per byte, year) predict less well.
double kind_distance(const cluster::PlanningKind& a, const cluster::PlanningKind& b);

/// Returns the kind from which times are carried to `wanted`: a GPU of the same vendor, by least
/// kind_distance, then least difference in year, then as listed; null if there is none. CPUs are
/// not carried: a profile states neither its processor nor how many of its cores were used.
const cluster::PlanningKind* nearest_kind(const cluster::PlanningKind& wanted,
                                          std::span<const cluster::PlanningKind> measured);

/// A model's operators on a kind that is not here, from measurements on another: each by
/// carried_seconds, with the shortest kernel as launch cost; unchanged on the same kind. Knows only
/// measured operators. Error: docs/models.md, "Profiles carried to other device kinds".
class CarriedTimes : public TimeSource {
 public:
  /// `entries`: all of the measured device.
  CarriedTimes(const std::shared_ptr<const graph::Graph>& graph,
               const std::vector<OpEntry>& entries, const cluster::PlanningKind& here,
               const cluster::PlanningKind& there);
  std::vector<std::optional<Answer>> times(const program::DeviceProgram& program) const override;

 private:
  MeasuredTimes measured_;
  KindTimes here_, there_;
  Seconds launch_;
  double share_;
};

}  // namespace motley::cost
