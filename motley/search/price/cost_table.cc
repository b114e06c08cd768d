#include "motley/search/price/cost_table.h"

#include <fmt/format.h>

#include "motley/base/line_cursor.h"
#include "motley/base/text.h"

namespace motley::search {
namespace {

constexpr std::string_view kVersion = "motley.costs/1";

bool expect_float(LineCursor& line, double& value) {
  const auto number = find_float(line.take_number());
  if (!number) return line.fail("a number");
  value = *number;
  return true;
}

bool expect_seconds(LineCursor& line, Seconds& seconds) {
  return expect_float(line, seconds.value);
}

bool parse_device(LineCursor& line, CostTable& table) {
  CostTable::Device& device = table.devices.emplace_back();
  return line.expect_quoted(device.name) && line.expect_word("kind") &&
         line.expect_quoted(device.kind) && line.expect_word("from") &&
         line.expect_quoted(device.grounds) && line.expect_end();
}

bool parse_pace(LineCursor& line, CostTable::Device& device) {
  cost::Pace::Sample& pace = device.paces.emplace_back();
  return expect_float(line, pace.speed) && line.expect_word("of") &&
         expect_seconds(line, pace.compute) && line.expect_end();
}

bool parse_row(LineCursor& line, CostTable::Device& device) {
  CostTable::Row& row = device.rows.emplace_back();
  return line.expect_integer(row.samples) && line.expect_word("alone") &&
         expect_seconds(line, row.alone) && line.expect_word("shared") &&
         expect_seconds(line, row.shared) && line.expect_end();
}

bool parse_line(LineCursor& line, CostTable& table) {
  if (line.take_word("device")) return parse_device(line, table);
  if (table.devices.empty()) return line.fail("'device'");
  if (line.take_word("pace")) return parse_pace(line, table.devices.back());
  if (line.take_word("batch")) return parse_row(line, table.devices.back());
  return line.fail("'device', 'pace' or 'batch'");
}

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

Result<CostTable> parse_cost_table(std::string_view text, const std::string& name) {
  CostTable table;
  MOTLEY_RETURN_IF_ERROR(
      parse_lines(text, name, {"search.costs", kVersion},
                  [&](LineCursor& line, int) { return parse_line(line, table); }));
  return table;
}

}  // namespace motley::search
