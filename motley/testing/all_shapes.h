#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "motley/search/stages/shapes/shape_search.h"

namespace motley {

/// Lists every pipeline configuration of a replica, fitting memory or not: all cuts, units and
/// micro-batches. For few layers and units: units (units + 1)^(layers - 1) for each micro-batch.
inline std::vector<search::ReplicaShape> all_shapes(const search::StageCosts& costs) {
  std::vector<search::ReplicaShape> all;
  for (const std::int64_t micro : costs.micro_batches()) {
    search::ReplicaShape shape{{}, micro};
    const std::function<void(std::size_t)> extend = [&](std::size_t first) {
      if (first == costs.layers()) return all.push_back(shape);
      for (std::size_t end = first + 1; end <= costs.layers(); ++end)
        for (std::size_t unit = 0; unit < costs.units().size(); ++unit) {
          shape.stages.push_back({first, end, unit});
          extend(end);
          shape.stages.pop_back();
        }
    };
    extend(0);
  }
  return all;
}

}  // namespace motley
