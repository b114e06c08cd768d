#include <algorithm>
#include <set>

#include "motley/search/stages/passes/whole_mixes.h"

namespace motley::search {
namespace {

/// Times the least possible time at which mixes are put together: whole replicas do not fill the
/// devices, and what is simulated takes longer than the model says.
constexpr double kModelTimes[] = {1.0, 1.01, 1.03, 1.06};
constexpr double kSimulatedTimes[] = {1.0, 1.03, 1.06, 1.1, 1.15, 1.2, 1.3};
constexpr double kExchangeTimes[] = {1.0, 1.03, 1.06, 1.1, 1.15};
constexpr double kDegreeTimes[] = {1.0, 1.06, 1.15, 1.3};

/// Are all its stages on units of so many devices?
bool has_degree(const ReplicaShape& shape, int degree, const StageCosts& costs) {
  return std::all_of(shape.stages.begin(), shape.stages.end(), [&](const ShapeStage& stage) {
    return costs.units()[stage.unit].degree() == degree;
  });
}

}  // namespace

Result<GeneratedMixes> mix_by_model(const GeneratorInput& input) {
  GeneratedMixes made;
  for (const double times : kModelTimes)
    MOTLEY_RETURN_IF_ERROR(
        add_mix(input, input.shapes, {times * input.start.possible, SamplesBy::kModel}, made));
  return made;
}

Result<GeneratedMixes> mix_by_simulation(const GeneratorInput& input) {
  GeneratedMixes made;
  for (const double times : kSimulatedTimes)
    MOTLEY_RETURN_IF_ERROR(
        add_mix(input, input.shapes, {.seconds = times * input.start.possible}, made));
  return made;
}

Result<GeneratedMixes> mix_by_exchange(const GeneratorInput& input) {
  GeneratedMixes made;
  if (input.space.classes.size() == 1) return made;
  std::set<double> afters;
  for (const ReplicaMix& mix : input.mixes)
    for (const auto& [shape, count] : mix.parts) afters.insert(input.estimates.after_passes(shape));
  for (const double after : afters)
    for (const double times : kExchangeTimes)
      MOTLEY_RETURN_IF_ERROR(add_mix(input, input.shapes,
                                     {.seconds = times * input.start.possible, .most_after = after},
                                     made));
  return made;
}

Result<GeneratedMixes> mix_by_degree(const GeneratorInput& input) {
  GeneratedMixes made;
  std::set<int> degrees;
  for (const StageUnit& unit : input.space.costs.units()) degrees.insert(unit.degree());
  if (degrees.size() == 1) return made;
  for (const int degree : degrees) {
    std::vector<ReplicaShape> shapes;
    for (const ReplicaShape& shape : input.shapes)
      if (has_degree(shape, degree, input.space.costs)) shapes.push_back(shape);
    for (const double times : kDegreeTimes)
      MOTLEY_RETURN_IF_ERROR(
          add_mix(input, shapes, {.seconds = times * input.start.possible}, made));
  }
  return made;
}

}  // namespace motley::search
