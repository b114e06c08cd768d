#include "motley/search/price/cost_table.h"

#include <fmt/format.h>

#include "motley/base/text.h"

namespace motley::search {
namespace {

constexpr std::string_view kVersion = "motley.costs/1";

}  // namespace

CostTable build_cost_table(const Costs& costs, const cluster::Cluster& cluster) {
  CostTable table;
  for (const cluster::Device& device : cluster.devices) {
    const auto found = costs.devices.find(device.name);
    if (found == costs.devices.end() || !found->second.alone.table) continue;
    const cost::ProfileCost::DeviceTimes& times = found->second;
    CostTable::Device& row = table.devices.emplace_back();
    row.name = device.name;
    row.kind = device.kind;
    row.grounds = costs.grounds.at(device.name).text;
    row.paces = times.pace.samples();
    for (const double batch : times.alone.table->batches())
      row.rows.push_back({static_cast<std::int64_t>(batch),
                          times.alone.table->total(batch) / times.table_speed(),
                          times.shared.table->total(batch) / times.table_speed()});
  }
  return table;
}

std::string print_cost_table(const CostTable& table) {
  std::string text(kVersion);
  text += '\n';
  for (const CostTable::Device& device : table.devices) {
    text += fmt::format("device {} kind {} from {}\n", quote(device.name), quote(device.kind),
                        quote(device.grounds));
    for (const auto& [compute, speed] : device.paces)
      text += fmt::format("  pace {} of {}\n", print_float(speed), print_float(compute.value));
    for (const auto& [samples, alone, shared] : device.rows)
      text += fmt::format("  batch {} alone {} shared {}\n", samples, print_float(alone.value),
                          print_float(shared.value));
  }
  return text;
}

}  // namespace motley::search
