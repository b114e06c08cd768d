#include "motley/control/view/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "motley/base/text.h"
#include "motley/control/view/micro_batches.h"
#include "motley/control/view/report_parts.h"
#include "motley/plan/shares.h"
#include "motley/report/page/report_data.h"
#include "motley/report/report.h"

namespace motley::control {
namespace {

constexpr int kShownSteps = 2;
constexpr const char* kEqualSplit = "equal split";

std::vector<std::int64_t> samples_of(const plan::Plan& plan) {
  std::vector<std::int64_t> samples;
  for (const plan::Member& member : plan::members(plan)) samples.push_back(member.samples);
  return samples;
}

plan::Plan equal_split(const ChosenPlan& chosen) {
  const std::vector<DeviceId>& devices = chosen.inputs.devices;
  return plan::split_instead(
      chosen.planned.plan, devices,
      plan::round_shares(std::vector<double>(devices.size(), 1), chosen.planned.plan.global_batch));
}

class Pricer {
 public:
  explicit Pricer(const ChosenPlan& chosen) : chosen_(chosen) {}

  void add(const std::string& label, const plan::Plan& plan) {
    const auto price = chosen_.priced.evaluator->price(plan);
    if (!price) return;
    bool fits = true;
    const std::vector<plan::Member> members = plan::members(plan);
    for (std::size_t i = 0; i < members.size() && i < price->peaks.size(); ++i) {
      const auto room = chosen_.inputs.cluster.device(members[i].device).room();
      fits = fits && (!room || price->peaks[i] <= *room);
    }
    found_.push_back({label, price->step, fits});
  }

  void add_split(const std::string& label, const std::vector<DeviceId>& devices,
                 const std::vector<std::int64_t>& samples) {
    add(label, plan::split_instead(chosen_.planned.plan, devices, samples));
  }

  std::vector<report::Neighbour> sorted() && {
    std::stable_sort(found_.begin(), found_.end(),
                     [](const auto& a, const auto& b) { return a.step < b.step; });
    return std::move(found_);
  }

 private:
  const ChosenPlan& chosen_;
  std::vector<report::Neighbour> found_;
};

/// Adds variants of a plan with one shared region: a twentieth moved, or a device left out.
void add_other_shares(const ChosenPlan& chosen, Pricer& pricer) {
  constexpr std::size_t kMostMoved = 6, kMostLess = 8;
  const plan::Region& region = chosen.planned.plan.replicas[0].regions[0];
  const std::size_t n = region.devices.size();
  const auto name = [&](std::size_t i) {
    return chosen.inputs.cluster.device(region.devices[i]).name;
  };
  const auto add = [&](const std::string& label, std::vector<double> shares) {
    plan::Plan other = chosen.planned.plan;
    other.replicas[0].regions[0].shares = std::move(shares);
    pricer.add(label, other);
  };
  const double moved = std::accumulate(region.shares.begin(), region.shares.end(), 0.0) / 20;
  for (std::size_t from = 0; from < n && n <= kMostMoved; ++from)
    for (std::size_t to = 0; to < n; ++to) {
      if (from == to || region.shares[from] <= moved) continue;
      std::vector<double> shares = region.shares;
      shares[from] -= moved, shares[to] += moved;
      add(fmt::format("5 % from {} to {}", name(from), name(to)), std::move(shares));
    }
  for (std::size_t i = 0; i < n && n > 2 && n <= kMostLess; ++i) {
    std::vector<double> shares = region.shares;
    shares[i] = 0;
    add("without " + name(i), std::move(shares));
  }
}

/// Adds variants of a plan that splits only samples: some moved, or a device left out.
void add_other_splits(const ChosenPlan& chosen, Pricer& pricer) {
  constexpr std::size_t kMostMoved = 6, kMostLess = 8;
  const plan::Plan& plan = chosen.planned.plan;
  std::vector<DeviceId> devices;
  for (const plan::Member& member : plan::members(plan)) devices.push_back(member.device);
  const std::vector<std::int64_t> samples = samples_of(plan);
  const auto name = [&](std::size_t i) { return chosen.inputs.cluster.device(devices[i]).name; };
  const std::int64_t moved = std::max<std::int64_t>(1, plan.global_batch / 20);
  for (std::size_t from = 0; from < devices.size() && devices.size() <= kMostMoved; ++from)
    for (std::size_t to = 0; to < devices.size(); ++to) {
      if (from == to || samples[from] <= moved) continue;
      std::vector<std::int64_t> other = samples;
      other[from] -= moved, other[to] += moved;
      pricer.add_split(fmt::format("{} from {} to {}", moved, name(from), name(to)), devices,
                       other);
    }
  for (std::size_t i = 0; i < devices.size() && devices.size() > 2 && devices.size() <= kMostLess;
       ++i) {
    std::vector<double> shares(samples.begin(), samples.end());
    shares[i] = 0;
    pricer.add_split("without " + name(i), devices, plan::round_shares(shares, plan.global_batch));
  }
}

bool does_equal_split_fit(const report::ReportData& report_data) {
  for (const report::Neighbour& each : report_data.neighbours)
    if (each.label == kEqualSplit) return each.fits;
  return true;
}

std::string plan_verdict(const report::ReportData& report_data, Seconds step) {
  std::string text = fmt::format("A step is to take {}", format_seconds(step));
  if (!does_equal_split_fit(report_data))
    text += "; an equal split does not fit";
  else if (report_data.timelines.size() > 1)
    text += fmt::format(": {:.2f} times as fast as an equal split",
                        report_data.timelines.front().step / step);
  Seconds ours, alone;
  std::string who;
  for (const report::Neighbour& each : report_data.neighbours) {
    if (each.label == report::kThisPlan) ours = each.step;
    if (each.fits && each.label.ends_with(" alone") && who.empty()) {
      alone = each.step;
      who = each.label;
    }
  }
  if (!who.empty() && ours.value > 0)
    text += fmt::format(", {:.2f} times as fast as {}", alone / ours, who);
  return text + ". " + report::waiting_sentence(report_data);
}

}  // namespace

std::vector<report::Neighbour> find_neighbours(const ChosenPlan& chosen) {
  constexpr std::size_t kMostAlone = 8;
  const plan::Plan& plan = chosen.planned.plan;
  Pricer pricer(chosen);
  pricer.add(report::kThisPlan, plan);
  const bool is_split = !plan::has_stages(plan) && !plan::splits_operators(plan);
  if (is_split) add_other_splits(chosen, pricer);
  if (!is_split && plan.replicas.size() == 1 && plan.replicas[0].regions.size() == 1)
    add_other_shares(chosen, pricer);
  if (plan::Plan equal = equal_split(chosen); equal != plan)
    pricer.add(kEqualSplit, std::move(equal));
  const std::vector<DeviceId>& devices = chosen.inputs.devices;
  for (std::size_t i = 0; i < devices.size() && devices.size() > 1 && devices.size() <= kMostAlone;
       ++i)
    pricer.add_split(chosen.inputs.cluster.device(devices[i]).name + " alone", {devices[i]},
                     {plan.global_batch});
  plan::Plan more = plan, fewer = plan;
  bool can_be_fewer = true;
  for (plan::Replica& replica : more.replicas) replica.micro_batches *= 2;
  for (plan::Replica& replica : fewer.replicas) {
    can_be_fewer = can_be_fewer && replica.micro_batches > 1;
    replica.micro_batches = std::max<std::int64_t>(1, replica.micro_batches / 2);
  }
  pricer.add("twice the micro-batches", more);
  if (can_be_fewer) pricer.add("half the micro-batches", fewer);
  return std::move(pricer).sorted();
}

Result<report::ReportData> tell_plan(const ChosenPlan& chosen, const std::string& title) {
  const Inputs& inputs = chosen.inputs;
  MOTLEY_ASSIGN(Predicted predicted,
                predict(inputs, chosen.planned, *chosen.priced.costs, kShownSteps));
  report::ReportData report_data{.title = title, .state = "planned", .verdict = ""};
  for (const plan::Member& member : plan::members(chosen.planned.plan))
    report_data.samples.emplace_back(inputs.cluster.device(member.device).name, member.samples);
  // A split without a program or price is not shown.
  if (plan::Plan equal = equal_split(chosen); equal != chosen.planned.plan)
    if (const auto planned = lower_plan(inputs, equal))
      if (auto other = predict(inputs, *planned, *chosen.priced.costs, kShownSteps))
        report_data.timelines.push_back({kEqualSplit, plan::samples_text(samples_of(equal)),
                                         other->seconds(), std::move(other->trace)});
  report_data.timelines.push_back(
      {"plan", report::plan_label(chosen.planned.plan), predicted.seconds(), predicted.trace});
  for (const DevicePrediction& device : predicted.devices) {
    report::DeviceMemory memory{
        device.name,
        inputs.cluster.device(cluster::find_device(inputs.cluster, device.name).value()).memory,
        Bytes(static_cast<std::int64_t>(device.peak.value)), std::nullopt,
        memory_parts(device.price.memory)};
    if (device.framework.value > 0) memory.parts.emplace_back("framework", device.framework);
    report_data.memory.push_back(std::move(memory));
  }
  report_data.links = find_link_loads(*chosen.planned.program, inputs.cluster, predicted.trace);
  report_data.stages = find_stages(chosen.planned.plan, inputs.cluster);
  add_stage_work(chosen.planned.plan, *chosen.planned.program, predicted.trace, report_data.stages);
  report_data.layers =
      find_layer_cuts(*chosen.planned.program, predicted.trace, report_data.stages);
  report_data.timelines.back().passes = find_passes(*chosen.planned.program, report_data.stages);
  report_data.timelines.back().peers = find_peers(*chosen.planned.program);
  report_data.neighbours = find_neighbours(chosen);
  if (!does_equal_split_fit(report_data) && report_data.timelines.front().name == kEqualSplit)
    report_data.timelines.front().caption += ", does not fit";
  report_data.verdict = plan_verdict(report_data, predicted.seconds());
  report_data.remarks.push_back(fmt::format("80 % of runs are to take {} to {} a step (by {}).",
                                            format_seconds(Seconds(predicted.step.low)),
                                            format_seconds(Seconds(predicted.step.high)),
                                            predicted.basis));
  return report_data;
}

}  // namespace motley::control
