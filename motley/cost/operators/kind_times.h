#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "motley/base/dtype.h"
#include "motley/cluster/kinds.h"
#include "motley/cost/measured/operator_work.h"
#include "motley/cost/operators/time_source.h"
#include "motley/graph/graph.h"

namespace motley::cost {

/// The fraction of a kind's figures that its operators reach.
struct KindEfficiency {
  Seconds launch{5e-6};  ///< least time of a kernel: its launch by the host
  double flops = 0.884;  ///< of the peak rate of the operator's dtype
  double bytes = 0.769;  ///< of the memory bandwidth
  bool operator==(const KindEfficiency&) const = default;
};

/// Returns the time of an operator on a device of a kind that was never measured:
///   t = max(launch, flops / (e_f peak) + bytes / (e_b bandwidth)).
/// One pair of efficiencies serves all kinds: fitted to the operators of transformer blocks on six
/// of them (`make bench-accuracy`, "kinds never measured"), it predicts a seventh to 17 % on
/// average. Arithmetic and memory traffic are added although they may overlap. That fits better,
/// because matrix products do not reach their peak while they wait for memory. An operator of a
/// dtype without a rate (integers) only moves bytes.
Seconds kind_seconds(const cluster::PlanningKind& kind, DType dtype, const OperatorWork& work,
                     const KindEfficiency& efficiency = {});

/// A model's operators on a kind, by kind_seconds. Programs are lowered from `graph`.
class KindTimes : public WorkTimes {
 public:
  KindTimes(std::shared_ptr<const graph::Graph> graph, const cluster::PlanningKind& kind,
            const KindEfficiency& efficiency = {})
      : WorkTimes(std::move(graph)), kind_(kind), efficiency_(efficiency) {}
  Answer answer(std::string_view name, DType dtype, const OperatorWork& work) const override;

 private:
  cluster::PlanningKind kind_;
  KindEfficiency efficiency_;
};

}  // namespace motley::cost
