#include "motley/search/spmd/price_sharding.h"

#include <algorithm>
#include <map>
#include <utility>

#include "motley/program/memory.h"
#include "motley/search/spmd/prices.h"
#include "motley/simulate/simulate.h"
#include "motley/trace/trace.h"

namespace motley::search {
namespace {

/// Seconds of compute of each rank in a simulated step.
std::vector<double> compute_of(const trace::Trace& trace) {
  std::vector<double> seconds;
  for (const trace::Breakdown& part : trace::break_down(trace))
    seconds.push_back(static_cast<double>(part.compute) * 1e-9);
  return seconds;
}

Result<Bytes> peak_of(const cost::ProfileCost& model, const cluster::Device& device,
                      const program::DeviceProgram& program) {
  MOTLEY_ASSIGN(const std::vector<Bytes> scratch, model.scratch_bytes(program));
  const Bytes tensors = program::find_memory_peak(program, scratch).total;
  return tensors + cost::framework_bytes(device, tensors);
}

/// Ranks that stand for all: of devices that are alike and have equal shares the first, which has
/// the largest parts.
struct Representatives {
  std::vector<std::size_t> ranks;
  std::vector<std::size_t> of_rank;  // position in `ranks`
};

Representatives find_representatives(const SpmdQuestion& question,
                                     const std::vector<DeviceId>& devices,
                                     const std::vector<double>& shares) {
  Representatives found;
  const auto times = [&](std::size_t rank) -> const auto& {
    return question.costs->devices.at(question.cluster->device(devices[rank]).name);
  };
  const auto alike = [&](std::size_t a, std::size_t b) {
    const auto &x = times(a), &y = times(b);
    return shares[a] == shares[b] && x.other.source == y.other.source &&
           x.other.speed == y.other.speed && x.interference == y.interference;
  };
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    const auto like = std::find_if(found.ranks.begin(), found.ranks.end(),
                                   [&](std::size_t other) { return alike(rank, other); });
    found.of_rank.push_back(static_cast<std::size_t>(like - found.ranks.begin()));
    if (like == found.ranks.end()) found.ranks.push_back(rank);
  }
  return found;
}

/// The costs of representatives, whose exchanges are those of the whole group.
class GroupCost : public cost::CostModel {
 public:
  GroupCost(const cost::CostModel& model, const std::vector<std::string>& group)
      : model_(model), group_(group) {}
  Result<std::vector<Seconds>> compute_times(const program::DeviceProgram& program) const override {
    return model_.compute_times(program);
  }
  Result<Seconds> collective_time(std::string_view op, Bytes bytes,
                                  const std::vector<std::string>&) const override {
    return model_.collective_time(op, bytes, group_);
  }
  Result<cost::Transfer> transfer(std::string_view op, Bytes bytes,
                                  const std::vector<std::string>&) const override {
    return model_.transfer(op, bytes, group_);
  }
  double interference(const std::string& device, const std::vector<std::string>&) const override {
    return model_.interference(device, group_);
  }
  std::vector<double> link_capacities() const override { return model_.link_capacities(); }

 private:
  const cost::CostModel& model_;
  const std::vector<std::string>& group_;
};

}  // namespace

Result<SpmdPlan> price_sharding(const SpmdQuestion& question, const std::vector<DeviceId>& devices,
                                const std::vector<graph::ShardingRule>& rules,
                                synth::Sharding sharding) {
  const Representatives some = find_representatives(question, devices, sharding.shares);
  const program::Program program =
      synth::lower_some_ranks(*question.graph, sharding, rules, some.ranks, question.lowering);
  const cost::ProfileCost model = question.costs->model(*question.cluster);
  MOTLEY_ASSIGN(const trace::Trace trace,
                simulate::simulate(program, GroupCost(model, sharding.devices)));
  const std::vector<double> compute = compute_of(trace);
  SpmdPlan plan{devices, std::move(sharding), trace::median_step(trace), {}, {}, true};
  std::vector<Bytes> peaks;
  for (std::size_t s = 0; s < some.ranks.size(); ++s) {
    const cluster::Device& device = question.cluster->device(devices[some.ranks[s]]);
    MOTLEY_ASSIGN(const Bytes peak, peak_of(model, device, program.devices[s]));
    peaks.push_back(peak);
  }
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    plan.compute.push_back(compute[some.of_rank[rank]]);
    plan.peaks.push_back(peaks[some.of_rank[rank]]);
    const auto& memory = question.cluster->device(devices[rank]).memory;
    plan.fits = plan.fits && (!memory || plan.peaks.back() <= *memory);
  }
  return plan;
}

Result<std::vector<double>> whole_speeds(const SpmdQuestion& question, const SpmdSpace& space) {
  std::vector<double> speeds;
  std::map<std::pair<const cost::WorkTimes*, double>, double> known;
  for (const DeviceId id : question.devices) {
    const auto about = question.costs->by_work.find(question.cluster->device(id).name);
    if (about != question.costs->by_work.end()) {
      const auto same = known.find({about->second.times.get(), about->second.speed});
      if (same != known.end()) {
        speeds.push_back(same->second);
        continue;
      }
    }
    MOTLEY_ASSIGN(SpmdPrices prices, SpmdPrices::make(*question.graph, space, *question.cluster,
                                                      *question.costs, {id}, {1.0}));
    double seconds = 0;
    for (std::size_t i = 0; i < space.ways.size(); ++i)
      if (space.is_needed[i])
        seconds += prices.compute(OpId(static_cast<std::int64_t>(i)), space.ways[i][0])[0];
    const DeviceClass& device = prices.classes()[0];
    known[{device.times.get(), device.speed}] = 1 / seconds;
    speeds.push_back(1 / seconds);
  }
  return speeds;
}

}  // namespace motley::search
