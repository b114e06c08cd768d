#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "motley/base/text.h"
#include "motley/plan/shares.h"
#include "motley/report/report.h"

namespace motley::report {
namespace {

std::string share(double part, double whole) {
  return whole > 0 ? fmt::format("{:.0f}%", 100.0 * part / whole) : "-";
}

std::string against(Seconds step, Seconds chosen) {
  return chosen.value > 0 ? fmt::format("{:.2f}x", step / chosen) : "-";
}

/// Prints a peak, with its share of the device's limit if there is one.
std::string memory_cell(const cluster::Device& device, Bytes peak) {
  if (!device.memory) return format_bytes(peak);
  const std::string cell = fmt::format(
      "{} of {} ({})", format_bytes(peak), format_bytes(*device.memory),
      share(static_cast<double>(peak.value), static_cast<double>(device.memory->value)));
  if (device.spare.value == 0) return cell;
  return fmt::format("{}, planned up to {}", cell, format_bytes(*device.room()));
}

}  // namespace

namespace {

/// Prints a line per region: which devices compute which layers of which samples.
std::string stage_table(const plan::PlanOutcome& outcome, const cluster::Cluster& cluster) {
  struct Line {
    std::string replica, devices, layers, samples, micro_batches, memory;
  };
  std::vector<Line> lines;
  std::map<std::vector<DeviceId>, std::string> first;  // first stage on the same devices
  std::size_t devices_width = 7, layers_width = 6;
  for (std::size_t r = 0; r < outcome.plan->replicas.size(); ++r) {
    const plan::Replica& replica = outcome.plan->replicas[r];
    const std::vector<plan::Stretch> stretches = plan::find_stretches(replica, 0);
    for (std::size_t g = 0; g < replica.regions.size(); ++g) {
      const plan::Region& region = replica.regions[g];
      Line line{fmt::format("{}.{}", r, g), "", "", std::to_string(replica.samples), "", ""};
      for (const DeviceId id : region.devices) {
        line.devices += (line.devices.empty() ? "" : ", ") + cluster.device(id).name;
        for (const auto& [device, bytes] : outcome.peak)
          if (device == id && line.memory.empty())
            line.memory = memory_cell(cluster.device(id), bytes);
      }
      const auto [same, is_new] = first.emplace(region.devices, line.replica);
      if (!is_new) line.memory = "with " + same->second;
      if (r < outcome.stage_names.size() && g < outcome.stage_names[r].size()) {
        line.layers = outcome.stage_names[r][g];
      } else {
        line.layers = region.covers.empty()
                          ? "all"
                          : fmt::format("{} operators", plan::count_operators(region.covers));
      }
      line.micro_batches = stretches.front().count == stretches.back().count
                               ? fmt::format("{} of {}", stretches.size(), stretches.front().count)
                               : fmt::format("{} of {} and {}", stretches.size(),
                                             stretches.front().count, stretches.back().count);
      if (region.turns > 1) line.micro_batches += ", turns";
      devices_width = std::max(devices_width, line.devices.size());
      layers_width = std::max(layers_width, line.layers.size());
      lines.push_back(std::move(line));
    }
  }
  std::string text =
      fmt::format("\n  {:<6} {:<{}}  {:<{}} {:>8}  {:<14} {}\n", "stage", "devices", devices_width,
                  "layers", layers_width, "samples", "micro-batches", "peak memory");
  constexpr std::size_t kMost = 40;
  for (std::size_t i = 0; i < std::min(kMost, lines.size()); ++i)
    text += fmt::format("  {:<6} {:<{}}  {:<{}} {:>8}  {:<14} {}\n", lines[i].replica,
                        lines[i].devices, devices_width, lines[i].layers, layers_width,
                        lines[i].samples, lines[i].micro_batches, lines[i].memory);
  if (lines.size() > kMost) text += fmt::format("  and {} more\n", lines.size() - kMost);
  return text;
}

}  // namespace

namespace {

std::string idle_line(const plan::PlanOutcome& outcome, const cluster::Cluster& cluster) {
  if (outcome.idle.empty()) return "";
  std::string text = "  idle:";
  for (const DeviceId id : outcome.idle) text += " " + cluster.device(id).name;
  return text + "\n";
}

/// Joins the first names of a list, and says how many follow.
std::string first_of(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 8;
  if (names.size() <= kMost) return join(names, ", ");
  return fmt::format("{} and {} more", join({names.begin(), names.begin() + kMost}, ", "),
                     names.size() - kMost);
}

/// Prints who owns parameters: "  owners of *.bias: a:0 25 %, b:0 75 %".
std::string owner_lines(const plan::Plan& plan, const cluster::Cluster& cluster) {
  std::string text;
  for (const plan::Owners& owners : plan.owners) {
    double all = 0;
    for (const auto& [device, share] : owners.shares) all += share;
    std::vector<std::string> shares;
    for (const auto& [device, share] : owners.shares)
      if (share > 0)
        shares.push_back(
            fmt::format("{} {:.0f} %", cluster.device(device).name, 100 * share / all));
    text += fmt::format("  owners of {}: {}\n", first_of(owners.parameters), first_of(shares));
  }
  return text;
}

/// Prints what is recomputed or gathered again, stage by stage.
std::string again_lines(const plan::Plan& plan) {
  std::string text;
  for (std::size_t r = 0; r < plan.replicas.size(); ++r)
    for (std::size_t g = 0; g < plan.replicas[r].regions.size(); ++g) {
      const std::int64_t operators = plan::count_operators(plan.replicas[r].regions[g].recomputes);
      if (operators > 0)
        text += fmt::format(
            "  {}.{}: {} operators of the forward pass are done again in the backward pass\n", r, g,
            operators);
      const std::vector<plan::KeptParameter>& kept = plan.replicas[r].regions[g].parameters;
      const auto gathered = std::count_if(kept.begin(), kept.end(), [](const auto& parameter) {
        return parameter.is_gathered_again;
      });
      if (gathered > 0)
        text += fmt::format(
            "  {}.{}: {} of {} parameters kept in parts are gathered again for each pass\n", r, g,
            gathered, kept.size());
    }
  return text;
}

std::string print_why(const plan::PlanOutcome& outcome) {
  std::string text = outcome.why.empty() ? "" : "\n";
  for (const std::string& line : outcome.why) text += "  " + line + "\n";
  return text;
}

}  // namespace

std::string plan_label(const plan::Plan& plan) {
  if (!plan.owners.empty()) {
    plan::Plan without = plan;
    without.owners.clear();
    return plan_label(without);
  }
  std::vector<std::int64_t> samples;
  if (plan::has_stages(plan)) {
    for (const plan::Replica& replica : plan.replicas) samples.push_back(replica.samples);
    return plan::samples_text(samples) + " in stages";
  }
  for (const plan::Member& member : plan::members(plan)) samples.push_back(member.samples);
  const std::string text = plan::samples_text(samples);
  return plan::splits_operators(plan) ? "operators split " + text : text;
}

std::string print_outcome(const plan::PlanOutcome& outcome, const cluster::Cluster& cluster) {
  if (!outcome.plan) {
    std::string text = "no feasible plan\n";
    for (const std::string& line : outcome.why) text += "  " + line + "\n";
    return text;
  }
  std::string text = fmt::format("{} samples a step, planner {} ({}, {} plans considered)\n\n",
                                 outcome.plan->global_batch, outcome.planner,
                                 plan::reason_name(outcome.reason), outcome.considered);
  const std::string chosen = plan_label(*outcome.plan);
  std::size_t width = std::max({std::size_t{18}, chosen.size(), outcome.equal_split.label.size()});
  for (const plan::RunnerUp& each : outcome.runner_ups) width = std::max(width, each.label.size());
  const auto row = [&](const std::string& name, const std::string& samples, const std::string& step,
                       const std::string& relative, const std::string& fits) {
    text += fmt::format("  {:<22} {:<{}} {:>10} {:>9}  {}\n", name, samples, width, step, relative,
                        fits);
  };
  const auto priced = [&](const std::string& name, const std::string& samples, Seconds step,
                          const std::string& fits) {
    row(name, samples, step.value > 0 ? format_seconds(step) : "not known",
        against(step, outcome.predicted_step), fits);
  };
  row("plan", "samples", "step", "relative", "fits");
  const char* fits = outcome.may_not_fit ? "may not" : "yes";
  priced("chosen", chosen, outcome.predicted_step, fits);
  if (!outcome.equal_split.label.empty())
    priced("equal split", outcome.equal_split.label, outcome.equal_split.step,
           outcome.equal_split.fits ? fits : "no");
  if (!outcome.best_single.label.empty())
    priced("best single device", outcome.best_single.label, outcome.best_single.step,
           outcome.best_single.fits ? fits : "no");
  priced("lower bound", "-", outcome.lower_bound, "-");

  for (const plan::RunnerUp& each : outcome.runner_ups)
    priced("runner-up", each.label, each.step, fits);
  std::vector<std::pair<std::string, std::string>> rows;
  if (plan::has_stages(*outcome.plan)) {
    text += stage_table(outcome, cluster) + idle_line(outcome, cluster);
    return text + again_lines(*outcome.plan) + owner_lines(*outcome.plan, cluster) +
           print_why(outcome);
  }
  text += fmt::format("\n  {:<10} {:>8} {:>7}  {}\n", "device", "samples", "share", "peak memory");
  for (const auto& [id, samples] : plan::members(*outcome.plan)) {
    Bytes peak;
    for (const auto& [device, bytes] : outcome.peak)
      if (device == id) peak = bytes;
    rows.emplace_back(cluster.device(id).name,
                      fmt::format("{:>8} {:>7}  {}", samples,
                                  share(static_cast<double>(samples),
                                        static_cast<double>(outcome.plan->global_batch)),
                                  memory_cell(cluster.device(id), peak)));
  }
  for (const DeviceId id : outcome.idle)
    rows.emplace_back(cluster.device(id).name, fmt::format("{:>8} {:>7}  idle", 0, "0%"));
  text += print_rows(rows);
  return text + again_lines(*outcome.plan) + print_why(outcome);
}

}  // namespace motley::report
