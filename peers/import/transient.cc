#include "peers/import/transient.h"

#include <fmt/format.h>

#include <algorithm>

#include "motley/base/statistics.h"
#include "motley/base/text.h"
#include "peers/import/csv.h"

namespace motley::peers {
namespace {

constexpr std::string_view kRun = "-run";

struct MachineName {
  std::string zone;
  std::int64_t run = 0;
};

/// Parses "spot2-us-east1-c-run3-worker-0": zone us-east1-c, run 3.
Result<MachineName> parse_machine(const CsvTable& table, std::size_t row, std::size_t column) {
  std::string_view name = table.text(row, column);
  const auto fault = [&] { return table.fault(row, column, "[spotN-]ZONE-runNUMBER-ROLE"); };
  const std::size_t at = name.find(kRun);
  if (at == std::string_view::npos) return fault();
  const std::string_view after = name.substr(at + kRun.size());
  const auto run = find_integer(after.substr(0, after.find('-')));
  if (!run) return fault();
  std::string_view zone = name.substr(0, at);
  if (zone.starts_with("spot") && zone.find('-') != std::string_view::npos)
    zone.remove_prefix(zone.find('-') + 1);
  return MachineName{std::string(zone), *run};
}

Result<std::vector<TransientRun>> read_durations(const std::string& path) {
  MOTLEY_ASSIGN(const CsvTable table, CsvTable::read(path));
  MOTLEY_ASSIGN(const std::size_t zone, table.column("Zone"));
  MOTLEY_ASSIGN(const std::size_t number, table.column("Run"));
  MOTLEY_ASSIGN(const std::size_t duration, table.column("Duration"));
  std::vector<TransientRun> runs;
  for (std::size_t r = 0; r < table.rows(); ++r) {
    TransientRun& run = runs.emplace_back();
    run.zone = table.text(r, zone);
    MOTLEY_ASSIGN(run.number, table.integer(r, number));
    MOTLEY_ASSIGN(run.duration_s, table.positive_number(r, duration));
  }
  return runs;
}

}  // namespace

Result<std::vector<double>> read_transient_durations(const std::string& folder,
                                                     const std::string& cluster) {
  const std::string path = fmt::format("{}/training/{}/train_data_processed.csv", folder, cluster);
  MOTLEY_ASSIGN(const CsvTable table, CsvTable::read(path));
  MOTLEY_ASSIGN(const std::size_t column, table.column("Duration"));
  std::vector<double> durations;
  for (std::size_t r = 0; r < table.rows(); ++r) {
    MOTLEY_ASSIGN(const double duration, table.positive_number(r, column));
    durations.push_back(duration);
  }
  if (durations.empty()) return usage_error("cost.import", path + ": no runs");
  return durations;
}

bool TransientRun::is_undisturbed() const {
  return !is_stopped &&
         std::none_of(is_revoked.begin(), is_revoked.end(), [](bool is) { return is; });
}

Result<std::vector<TransientRun>> read_transient_runs(const std::string& folder,
                                                      const std::string& cluster) {
  const std::string path = fmt::format("{}/training/k80_spot/{}/", folder, cluster);
  MOTLEY_ASSIGN(std::vector<TransientRun> runs, read_durations(path + "train_data_processed.csv"));
  MOTLEY_ASSIGN(const CsvTable table, CsvTable::read(path + "vm_data.csv"));
  MOTLEY_ASSIGN(const std::size_t name, table.column("VM_name"));
  MOTLEY_ASSIGN(const std::size_t uptime, table.column("Uptime"));
  MOTLEY_ASSIGN(const std::size_t end, table.column("Revoked"));
  for (std::size_t r = 0; r < table.rows(); ++r) {
    MOTLEY_ASSIGN(const MachineName machine, parse_machine(table, r, name));
    const auto is_its = [&](const TransientRun& run) {
      return run.zone == machine.zone && run.number == machine.run;
    };
    const auto run = std::find_if(runs.begin(), runs.end(), is_its);
    if (run == runs.end())
      return table.fault(r, name, "a machine of a run in train_data_processed.csv");
    MOTLEY_ASSIGN(run->uptime_s.emplace_back(), table.positive_number(r, uptime));
    run->is_revoked.push_back(table.text(r, end) == "Revoked");
    if (table.text(r, end).starts_with("Manually stopped")) run->is_stopped = true;
  }
  return runs;
}

double start_delay_s(const std::vector<TransientRun>& runs) {
  std::vector<double> delays;
  for (const TransientRun& run : runs)
    if (run.is_undisturbed() && !run.uptime_s.empty())
      delays.push_back(run.uptime_s[0] - run.duration_s);
  return median(delays);
}

std::vector<elastic::AvailabilityTrace> presences_of(const TransientRun& run, double delay_s) {
  std::vector<elastic::AvailabilityTrace> presences(run.uptime_s.size());
  for (std::size_t i = 0; i < presences.size(); ++i)
    if (run.is_revoked[i]) presences[i].until = Seconds(std::max(0.0, run.uptime_s[i] - delay_s));
  return presences;
}

}  // namespace motley::peers
