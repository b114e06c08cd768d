#include "motley/search/stages/passes/whole_mixes.h"

#include <algorithm>
#include <map>
#include <utility>

namespace motley::search {

void add_counts(const GeneratorInput& input, const std::vector<ReplicaShape>& shapes,
                const std::vector<int>& counts, GeneratedMixes& made) {
  std::map<ReplicaShape, int> count_of;
  for (std::size_t i = 0; i < counts.size(); ++i)
    if (counts[i] > 0) count_of[shapes[i]] += counts[i];
  ReplicaMix mix{{count_of.begin(), count_of.end()}};
  const auto has = [&](const std::vector<ReplicaMix>& mixes) {
    return std::find(mixes.begin(), mixes.end(), mix) != mixes.end();
  };
  if (!mix.parts.empty() && !has(input.mixes) && !has(made.mixes))
    made.mixes.push_back(std::move(mix));
}

Result<void> add_mix(const GeneratorInput& input, const std::vector<ReplicaShape>& from,
                     const MixQuestion& question, GeneratedMixes& made) {
  ShapeEstimates& estimates = input.estimates;
  const ShapeSearch& search = input.space.ringed;
  const auto until = [&](const ReplicaShape& shape) {
    return question.most_after < kTooLong
               ? question.seconds - (question.most_after - estimates.after_passes(shape))
               : question.seconds;
  };
  std::vector<std::pair<double, std::size_t>> worth;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const ReplicaShape& shape = from[i];
    if (estimates.after_passes(shape) > question.most_after) continue;
    const std::int64_t does = question.by == SamplesBy::kModel
                                  ? estimates.expected_samples(shape, until(shape))
                                  : estimates.supposed_samples(shape, until(shape));
    double price = 1e-9;
    const std::vector<int> devices = search.devices(shape);
    for (std::size_t p = 0; p < devices.size(); ++p)
      price += input.start.answer.prices[p] * devices[p];
    if (does > 0) worth.emplace_back(-static_cast<double>(does) / price, i);
  }
  std::sort(worth.begin(), worth.end());
  if (worth.size() > question.most_offers) worth.resize(question.most_offers);
  std::vector<ReplicaShape> shapes;
  std::vector<ShapeOffer> offers;
  for (const auto& [negative, i] : worth) {
    const ReplicaShape& shape = from[i];
    if (question.by == SamplesBy::kSimulation)
      MOTLEY_RETURN_IF_ERROR(estimates.learn(shape, question.seconds));
    shapes.push_back(shape);
    offers.push_back({estimates.expected_samples(shape, until(shape)), search.devices(shape)});
  }
  add_counts(input, shapes, choose_replicas(offers, input.space.devices), made);
  if (question.by == SamplesBy::kSimulation && input.space.classes.size() > 1 &&
      input.space.runs("bundles"))
    add_counts(input, shapes, choose_bundles(input.space, shapes, offers), made);
  return {};
}

}  // namespace motley::search
