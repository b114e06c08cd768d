#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "motley/cost/cost_model.h"
#include "motley/program/program.h"
#include "motley/search/model_stages/model_units.h"

namespace motley::search {

/// The model's programs for one micro-batch on a unit alone, of the first device of each of its
/// parts, and the cost model of their instructions.
class UnitPrograms {
 public:
  /// What is given must outlive it.
  UnitPrograms(const PlannerInputs& inputs, const LayeredGraph& graph, const ModelUnits& units)
      : inputs_(inputs),
        graph_(graph),
        units_(units),
        model_(inputs.costs->model(*units.problem().cluster)) {}

  /// Absent where it cannot be split so. Origins are those of the whole graph.
  std::optional<program::Program> find(std::size_t unit, std::int64_t micro_batch) const;

  const LayeredGraph& graph() const { return graph_; }
  const ModelUnits& units() const { return units_; }
  const cost::CostModel& model() const { return *model_; }

 private:
  std::size_t first_like(std::size_t unit) const;
  std::optional<program::Program> lower(std::size_t unit, std::int64_t micro_batch) const;

  const PlannerInputs& inputs_;
  const LayeredGraph& graph_;
  const ModelUnits& units_;
  std::unique_ptr<const cost::CostModel> model_;
  // By the first unit of the same ways, and micro-batch.
  mutable std::map<std::pair<std::size_t, std::int64_t>, std::optional<program::Program>> programs_;
};

}  // namespace motley::search
