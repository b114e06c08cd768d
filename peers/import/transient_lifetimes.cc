// Reads lifetimes of single machines, from a spreadsheet with several blocks.
#include <algorithm>
#include <cctype>
#include <chrono>
#include <filesystem>
#include <utility>

#include "motley/base/text.h"
#include "peers/import/csv.h"
#include "peers/import/transient.h"

namespace motley::peers {
namespace {

constexpr double kNearLimit = 86040;

/// Converts "2/18/19 23:40" to seconds since 1970; none: no date.
std::optional<double> find_time(std::string_view text) {
  const std::size_t space = text.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  const auto date = split(text.substr(0, space), '/');
  const auto clock = split(text.substr(space + 1), ':');
  if (date.size() != 3 || clock.size() != 2) return std::nullopt;
  std::vector<std::int64_t> numbers;
  for (const auto part : {date[0], date[1], date[2], clock[0], clock[1]}) {
    const auto number = find_integer(part);
    if (!number || *number < 0) return std::nullopt;
    numbers.push_back(*number);
  }
  const std::chrono::year_month_day day(std::chrono::year(2000 + static_cast<int>(numbers[2])),
                                        std::chrono::month(static_cast<unsigned>(numbers[0])),
                                        std::chrono::day(static_cast<unsigned>(numbers[1])));
  if (!day.ok()) return std::nullopt;
  const auto days = std::chrono::sys_days(day).time_since_epoch().count();
  return static_cast<double>(days) * 86400 +
         static_cast<double>(numbers[3] * 3600 + numbers[4] * 60);
}

std::string lower(std::string_view text) {
  std::string result;
  for (const char c : text)
    result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

/// Returns "us-central1-a" of "a-v100-us-central1-a-4less" and kind v100.
std::string zone_of(std::string_view name, std::string_view kind) {
  const std::string head = "a-" + std::string(kind) + "-";
  if (name.starts_with(head)) {
    name.remove_prefix(head.size());
  } else if (name.starts_with("a-")) {
    name.remove_prefix(2);
  }
  return std::string(name.substr(0, name.rfind('-')));
}

}  // namespace

Result<std::vector<DatedLife>> read_transient_lifetimes(const std::string& folder) {
  MOTLEY_ASSIGN(const CsvTable table,
                CsvTable::read(folder + "/lifetime/lifetime.csv", CsvOptions{.has_names = false}));
  if (table.columns() != 3)
    return usage_error("cost.import", folder + "/lifetime/lifetime.csv: wanted three columns");
  std::vector<DatedLife> lives;
  std::string kind;
  double first = 0;
  for (std::size_t r = 0; r < table.rows(); ++r) {
    const std::string& name = table.text(r, 0);
    if (table.text(r, 1).empty() && table.text(r, 2).empty()) kind = lower(name);
    const auto start = find_time(table.text(r, 1)), end = find_time(table.text(r, 2));
    if (!start || !end) continue;
    if (*end < *start) return table.fault(r, 2, "an end behind the start");
    if (lives.empty() || *start < first) first = *start;
    lives.push_back(
        {name,
         {kind, zone_of(name, kind), Seconds(*start), Seconds(*end), *end - *start < kNearLimit}});
  }
  for (DatedLife& life : lives) {
    life.machine.start -= Seconds(first);
    *life.machine.end -= Seconds(first);
  }
  return lives;
}

Result<std::vector<Progress>> read_progress(const std::string& folder, const std::string& cluster,
                                            const TransientRun& run) {
  const std::string path = folder + "/training/k80_spot/" + cluster + "/";
  const std::string own = path + cluster + "-train_data.csv";  // the name in some folders
  MOTLEY_ASSIGN(const CsvTable table,
                CsvTable::read(std::filesystem::exists(own) ? own : path + "train_data.csv"));
  MOTLEY_ASSIGN(const std::size_t time, table.column("Wall Time"));
  MOTLEY_ASSIGN(const std::size_t step, table.column("Step"));
  MOTLEY_ASSIGN(const std::size_t zone, table.column("Zone"));
  MOTLEY_ASSIGN(const std::size_t number, table.column("Run"));
  std::vector<Progress> progress;
  for (std::size_t r = 0; r < table.rows(); ++r) {
    MOTLEY_ASSIGN(const std::int64_t its, table.integer(r, number));
    if (table.text(r, zone) != run.zone || its != run.number) continue;
    Progress& seen = progress.emplace_back();
    MOTLEY_ASSIGN(seen.at_s, table.number(r, time));
    MOTLEY_ASSIGN(seen.steps, table.number(r, step));
  }
  std::stable_sort(progress.begin(), progress.end(),
                   [](const Progress& a, const Progress& b) { return a.at_s < b.at_s; });
  for (std::size_t i = progress.size(); i-- > 0;) progress[i].at_s -= progress[0].at_s;
  return progress;
}

}  // namespace motley::peers
