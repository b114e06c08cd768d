#pragma once

#include <memory>
#include <span>
#include <vector>

#include "motley/cluster/kinds.h"
#include "motley/cost/operators/kind_times.h"
#include "motley/cost/operators/time_source.h"

namespace motley::cost {

/// How much of what was measured on one kind counts on another; the rest is what the other's
/// figures say. Least mean error over six kinds, each carried from the nearest of the others.
inline constexpr double kCarriedShare = 0.85;

/// One operator on two kinds of device, by their figures (kind_seconds without launch cost).
struct KindRatio {
  Seconds here, there;
};
/// Time there of an operator that took `measured` here, `launch` of it a cost of the host:
///   launch + share (measured - launch) there / here + (1 - share) there.
/// What the figures say nothing of (`here` is 0: views) keeps its time. What takes less than a
/// launch is all launch.
///
/// Example: 50 us, 10 of them launch, of which the figures explain 20, and 10 on a device twice as
/// fast: with share 1/2 it takes 10 + 20 / 2 + 5 = 25 us there.
Seconds carried_seconds(Seconds measured, Seconds launch, const KindRatio& figures,
                        double share = kCarriedShare);

/// |ln(ratio)| of the peak rates in f16, by which kinds sort into those whose programs are bound
/// by alike things. Of five other distances (f32 rate, bandwidth, both and f16, operations a byte,
/// year) each picked sources that predict less well on six kinds.
double kind_distance(const cluster::PlanningKind& a, const cluster::PlanningKind& b);

/// The one of `measured` from which times are carried to `wanted`: a GPU of the same vendor, least
/// kind_distance, then least difference in year, then as listed; null if there is none. CPUs are
/// not carried: a profile does not say which processor it was taken on, nor how many of its cores.
const cluster::PlanningKind* nearest_kind(const cluster::PlanningKind& wanted,
                                          std::span<const cluster::PlanningKind> measured);

/// The operators of a model on a kind that is not here, from measurements on another: each by
/// carried_seconds, the launch cost being the shortest kernel of the entries; on the same kind as
/// measured. Cannot say what was not measured. Known error: docs/models.md, "Profiles carried to
/// other device kinds".
class CarriedTimes : public TimeSource {
 public:
  /// `entries`: all of the device on which they were measured.
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
