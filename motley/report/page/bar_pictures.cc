#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "motley/base/text.h"
#include "motley/report/page/bars.h"
#include "motley/report/page/picture.h"
#include "motley/report/waits.h"

namespace motley::report {
namespace {

constexpr std::size_t kMostBars = 64;

void draw_both(const std::vector<Bar>& bars, double scale, Picture& picture) {
  std::vector<Bar> shown = bars;
  if (shown.size() > kMostBars) {
    shown.resize(kMostBars);
    picture.says += fmt::format(" The first {} of {} are drawn.", kMostBars, bars.size());
  }
  picture.wide = draw_bars(shown, scale, kWide, picture.title);
  picture.narrow = draw_bars(shown, scale, kNarrow, picture.title);
}

/// Numbers the kinds of parts by name, in order of first use.
class PartNumbers {
 public:
  std::size_t of(const std::string& name) {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end()) return names_.push_back(name), names_.size() - 1;
    return static_cast<std::size_t>(found - names_.begin());
  }
  std::string legend() const {
    std::string html;
    for (std::size_t i = 0; i < names_.size(); ++i) html += legend_entry(part_class(i), names_[i]);
    return html;
  }

 private:
  std::vector<std::string> names_;
};

std::string memory_words(const DeviceMemory& memory) {
  const std::optional<Bytes> held = memory.measured ? memory.measured : memory.predicted;
  if (!held) return "";
  if (!memory.limit) return format_bytes(*held);
  return fmt::format("{} of {} ({:.0f} %)", format_bytes(*held), format_bytes(*memory.limit),
                     100 * static_cast<double>(held->value) /
                         static_cast<double>(std::max<std::int64_t>(1, memory.limit->value)));
}

double parts_total(const DeviceMemory& memory) {
  double total = 0;
  for (const auto& [name, bytes] : memory.parts) total += static_cast<double>(bytes.value);
  return total;
}

Table memory_table(const ReportData& report_data) {
  Table table{{"device", "samples", "limit", "predicted", "measured", "of which"}, {}};
  for (std::size_t i = 0; i < report_data.memory.size(); ++i) {
    const DeviceMemory& each = report_data.memory[i];
    const std::string place = fmt::format("/device_memory/{}/", i);
    const auto cell = [&](const std::optional<Bytes>& bytes, const char* key) {
      return bytes ? bytes_cell(place + key, *bytes) : Cell{"-"};
    };
    std::string parts;
    for (const auto& [name, bytes] : each.parts)
      parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", name, format_bytes(bytes));
    Cell samples{"-"};
    for (std::size_t s = 0; s < report_data.samples.size(); ++s)
      if (report_data.samples[s].first == each.device)
        samples = number_cell(fmt::format("/samples/{}/samples", s),
                              static_cast<double>(report_data.samples[s].second));
    table.rows.push_back({{each.device},
                          std::move(samples),
                          cell(each.limit, "limit_bytes"),
                          cell(each.predicted, "predicted_bytes"),
                          cell(each.measured, "measured_bytes"),
                          {parts}});
  }
  return table;
}

}  // namespace

std::optional<Picture> draw_memory(const ReportData& report_data) {
  if (report_data.memory.empty()) return std::nullopt;
  Picture picture{.id = "memory", .title = "Memory, by what it holds"};
  picture.says = "When most is held. A thick line is a device's limit, where it is near enough.";
  PartNumbers numbers;
  std::vector<Bar> bars;
  double scale = 0;
  for (const DeviceMemory& each : report_data.memory) {
    Bar bar{each.device, {}, memory_words(each)};
    for (const auto& [name, bytes] : each.parts)
      bar.parts.push_back({static_cast<double>(bytes.value), part_class(numbers.of(name)),
                           name + " " + format_bytes(bytes)});
    if (each.limit) bar.mark = static_cast<double>(each.limit->value);
    scale = std::max(
        {scale, parts_total(each), each.measured ? static_cast<double>(each.measured->value) : 0});
    bars.push_back(std::move(bar));
  }
  // Shows a limit only if it is close: a distant one would leave no room for the bars.
  const double held = scale;
  for (const Bar& bar : bars)
    if (bar.mark && *bar.mark < 2 * held) scale = std::max(scale, *bar.mark * 1.02);
  draw_both(bars, scale, picture);
  picture.legend = numbers.legend();
  picture.table = memory_table(report_data);
  return picture;
}

std::optional<Picture> draw_links(const ReportData& report_data) {
  if (report_data.links.empty()) return std::nullopt;
  Picture picture{.id = "links", .title = "Links between machines, by load"};
  picture.says =
      "The share of a step in which an exchange that crosses the link is under way. Bytes are "
      "those "
      "of rings.";
  Table table{{"link", "rate", "bytes a step", "busy"}, {}};
  std::vector<Bar> bars;
  for (std::size_t i = 0; i < report_data.links.size(); ++i) {
    const LinkLoad& each = report_data.links[i];
    const std::string place = fmt::format("/links/{}/", i);
    bars.push_back(
        {each.name,
         {{each.busy_share, "exchange", format_bytes(each.bytes) + " a step"}},
         fmt::format("{:.1f} % busy, {} a step", 100 * each.busy_share, format_bytes(each.bytes))});
    Cell rate = number_cell(place + "bandwidth_bytes_per_s", each.bandwidth.value);
    rate.text = format_rate(each.bandwidth);
    table.rows.push_back({{each.name},
                          std::move(rate),
                          bytes_cell(place + "bytes", each.bytes),
                          share_cell(place + "busy_share", each.busy_share)});
  }
  draw_both(bars, 1, picture);
  picture.table = std::move(table);
  return picture;
}

std::optional<Picture> draw_layers(const ReportData& report_data) {
  if (report_data.layers.empty()) return std::nullopt;
  Picture picture{.id = "layers", .title = "Layers, and how each is cut"};
  picture.says = "Compute a step, of all devices together.";
  PartNumbers numbers;
  std::vector<Bar> bars;
  double scale = 0;
  const std::vector<std::string>& devices = report_data.timelines.back().trace.devices;
  const bool is_many = devices.size() > 10;  // more cannot be distinguished
  Table table{{"layer", "how it is cut"}, {}};
  if (!is_many) table.head.insert(table.head.end(), devices.begin(), devices.end());
  for (std::size_t i = 0; i < report_data.layers.size(); ++i) {
    const LayerCut& each = report_data.layers[i];
    Bar bar{each.layer, {}, each.cut};
    double total = 0;
    std::vector<Cell> row{{each.layer}, {each.cut}};
    for (std::size_t d = 0; d < each.compute_s.size(); ++d) {
      total += each.compute_s[d];
      if (is_many) continue;
      row.push_back(seconds_cell(fmt::format("/layers/{}/compute_s/{}", i, d), each.compute_s[d]));
      bar.parts.push_back({each.compute_s[d], part_class(numbers.of(devices[d])),
                           devices[d] + " " + format_seconds(Seconds(each.compute_s[d]))});
    }
    if (is_many) bar.parts.push_back({total, "work", format_seconds(Seconds(total))});
    scale = std::max(scale, total);
    bars.push_back(std::move(bar));
    table.rows.push_back(std::move(row));
  }
  draw_both(bars, scale, picture);
  picture.legend = numbers.legend();
  picture.table = std::move(table);
  return picture;
}

std::optional<Picture> draw_stages(const ReportData& report_data) {
  if (report_data.stages.empty()) return std::nullopt;
  Picture picture{.id = "stages", .title = "Stages and micro-batches"};
  picture.says =
      "Each replica is cut into stages, which pass its micro-batches on to each other. What a "
      "stage "
      "computes in a step, on its device that computes longest.";
  Table table{{"stage", "devices", "layers", "operators", "samples", "micro-batches", "computes"},
              {}};
  std::vector<Bar> bars;
  double scale = 0;
  for (std::size_t i = 0; i < report_data.stages.size(); ++i) {
    const StageRow& each = report_data.stages[i];
    const std::string place = fmt::format("/stages/{}/", i);
    const std::string name = fmt::format("{}.{}", each.replica, each.stage);
    const std::string devices = join(each.devices, ", ");
    const std::string compute = format_seconds(Seconds(each.compute_s));
    bars.push_back({name + " on " + devices,
                    {{each.compute_s, "work", compute}},
                    fmt::format("{}, {} of {}{}{}", compute, each.micro_batches,
                                each.samples / std::max<std::int64_t>(1, each.micro_batches),
                                each.layers.empty() ? "" : ", ", each.layers)});
    scale = std::max(scale, each.compute_s);
    table.rows.push_back(
        {{name},
         {devices},
         {each.layers},
         number_cell(place + "operators", static_cast<double>(each.operators)),
         number_cell(place + "samples", static_cast<double>(each.samples)),
         number_cell(place + "micro_batches", static_cast<double>(each.micro_batches)),
         seconds_cell(place + "compute_s", each.compute_s)});
  }
  draw_both(bars, scale, picture);
  picture.table = std::move(table);
  return picture;
}

std::optional<Picture> draw_neighbours(const ReportData& report_data) {
  if (report_data.neighbours.empty()) return std::nullopt;
  Picture picture{.id = "neighbours", .title = "What plans beside it would take"};
  picture.says = "A step of each, by the same prices. Hatched: a device has not the memory for it.";
  Seconds ours;
  for (const Neighbour& each : report_data.neighbours)
    if (each.label == kThisPlan) ours = each.step;
  Table table{{"plan", "a step", "beside this one", "fits"}, {}};
  std::vector<Bar> bars;
  double scale = 0;
  for (std::size_t i = 0; i < report_data.neighbours.size(); ++i) {
    const Neighbour& each = report_data.neighbours[i];
    const bool is_ours = each.label == kThisPlan;
    const std::string off =
        is_ours || ours.value <= 0 ? "" : fmt::format("{:+.1f} %", 100 * (each.step / ours - 1));
    bars.push_back({each.label,
                    {{each.step.value,
                      !each.fits ? "wait"
                      : is_ours  ? "work"
                                 : "work two",
                      ""}},
                    format_seconds(each.step) + (off.empty() ? "" : ", " + off) +
                        (each.fits ? "" : ", does not fit")});
    scale = std::max(scale, each.step.value);
    table.rows.push_back({{each.label},
                          seconds_cell(fmt::format("/neighbours/{}/step_s", i), each.step.value),
                          {off},
                          {each.fits ? "yes" : "no"}});
  }
  draw_both(bars, scale, picture);
  picture.table = std::move(table);
  return picture;
}

std::optional<Picture> draw_ranks(const ReportData& report_data) {
  if (report_data.ranks.empty()) return std::nullopt;
  Picture picture{.id = "ranks", .title = "Where each rank is"};
  picture.says = report_data.state == "running"
                     ? "Steps that each rank has come to."
                     : "Steps that each rank came to, and what it did last.";
  Table table{{"rank", "device", "process", "step", "where"}, {}};
  std::vector<Bar> bars;
  double scale = 1;
  for (std::size_t i = 0; i < report_data.ranks.size(); ++i) {
    const RankRow& each = report_data.ranks[i];
    const double step = each.step ? static_cast<double>(*each.step) : 0;
    bars.push_back({fmt::format("{} (rank {})", each.device, each.rank),
                    {{step, each.is_running ? "work" : "wait", each.where}},
                    each.where});
    scale = std::max(scale, step);
    table.rows.push_back(
        {{std::to_string(each.rank)},
         {each.device},
         {each.is_running ? "running"
          : each.step     ? "gone"
                          : "never started"},
         each.step ? number_cell(fmt::format("/ranks/{}/step", i), step) : Cell{"-"},
         {each.where}});
  }
  draw_both(bars, scale, picture);
  picture.table = std::move(table);
  return picture;
}

}  // namespace motley::report
