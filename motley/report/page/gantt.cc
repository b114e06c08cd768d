#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "motley/base/text.h"
#include "motley/report/page/bars.h"
#include "motley/report/page/layer_names.h"
#include "motley/report/page/picture.h"
#include "motley/report/waits.h"

namespace motley::report {
namespace {

using trace::Interval;
using trace::Nanoseconds;

constexpr std::size_t kMostRows = 64;      // devices of a timeline
constexpr std::size_t kDetailedRows = 12;  // rows up to which layers are distinguished
constexpr double kGutter = 70, kRight = 10;

/// One step of a timeline: the step of its trace whose time is nearest the timeline's median.
struct ShownStep {
  const Timeline* timeline = nullptr;
  std::int64_t step = 0;
  Nanoseconds begin = 0, end = 0;
  std::vector<Wait> waits;          // of that step
  std::vector<DeviceTimes> times;   // of all steps
  std::vector<std::string> places;  // by device: "stage 0.1", or ""
};

/// Finds each device's place in the plan: the stages it computes.
std::vector<std::string> find_places(const Timeline& timeline,
                                     const std::vector<StageRow>& stages) {
  std::vector<std::string> places;
  for (const std::string& device : timeline.trace.devices) {
    std::vector<std::string> names;
    for (const StageRow& each : stages)
      if (std::find(each.devices.begin(), each.devices.end(), device) != each.devices.end())
        names.push_back(fmt::format("{}.{}", each.replica, each.stage));
    const bool is_staged = !names.empty() && !timeline.passes.empty();
    places.push_back(
        is_staged ? fmt::format("{} {}", names.size() > 1 ? "stages" : "stage", join(names, ", "))
                  : "");
  }
  return places;
}

ShownStep choose_step(const Timeline& timeline, const std::vector<StageRow>& stages) {
  const trace::Trace& trace = timeline.trace;
  std::map<std::int64_t, std::pair<Nanoseconds, Nanoseconds>> steps;
  for (const trace::StepMark& mark : trace.steps) {
    auto& [begin, end] = steps.try_emplace(mark.step, mark.begin, mark.end).first->second;
    begin = std::min(begin, mark.begin);
    end = std::max(end, mark.end);
  }
  ShownStep shown{.timeline = &timeline};
  const double median = timeline.step.value * 1e9;
  double nearest = -1;
  for (const auto& [step, span] : steps) {
    const double off = std::abs(static_cast<double>(span.second - span.first) - median);
    if (nearest >= 0 && off >= nearest) continue;
    nearest = off;
    shown.step = step, shown.begin = span.first, shown.end = span.second;
  }
  shown.waits = find_waits(trace, timeline.peers);
  shown.times = sum_times(trace, shown.waits);
  shown.places = find_places(timeline, stages);
  std::erase_if(shown.waits, [&](const Wait& wait) { return wait.step != shown.step; });
  return shown;
}

/// How a device's work is distinguished: by micro-batch where there are several, else by layer.
struct Work {
  Pass pass;
  std::string layer;  // "" where layers are not distinguished
  bool is_of_pass() const { return pass.micro_batch >= 0; }
  bool operator==(const Work&) const = default;

  std::string words() const {
    if (!is_of_pass()) return layer;
    return fmt::format("{}{}", pass.micro_batch, pass.is_backward ? "b" : "");
  }
  std::string title() const {
    if (!is_of_pass()) return layer;
    return fmt::format("micro-batch {}, {}", pass.micro_batch,
                       pass.is_backward ? "backward" : "forward");
  }
};

struct Stretch {
  double begin = 0, end = 0;
  Work work;
};

/// Draws the rows of one timeline, all devices on one clock.
class Rows {
 public:
  Rows(Svg& svg, const ShownStep& shown, Frame frame, double seconds)
      : svg_(svg), shown_(shown), trace_(shown.timeline->trace), frame_(frame) {
    left_ = frame.is_narrow() ? 0 : kGutter;
    const double width = frame.width - left_ - (frame.is_narrow() ? 0 : kRight);
    per_ns_ = width / (std::max(1e-9, seconds) * 1e9);
    for (std::size_t d = 0; d < trace_.devices.size(); ++d) rows_.push_back(d);
    if (rows_.size() > kMostRows) rows_.resize(kMostRows);
    is_detailed_ = rows_.size() <= kDetailedRows;
    bar_ = is_detailed_ ? 20 : 8;
    pitch_ = is_detailed_ ? (frame.is_narrow() ? 54 : 46) : 11;
  }

  static double height(const Timeline& timeline, Frame frame) {
    const std::size_t rows = std::min(kMostRows, timeline.trace.devices.size());
    const double pitch = rows > kDetailedRows ? 11 : frame.is_narrow() ? 54 : 46;
    return 26 + pitch * static_cast<double>(rows) + 8;
  }

  void draw(double top) {
    svg_.text(0, top + 14, "head", fit(headline(), frame_.width));
    top_ = top + 26;
    for (std::size_t row = 0; row < rows_.size(); ++row) draw_row(row);
    draw_arrows();
    for (std::size_t row = 0; row < rows_.size(); ++row) draw_words(row);  // over the arrows
  }

 private:
  double x(Nanoseconds time) const {
    return left_ + static_cast<double>(time - shown_.begin) * per_ns_;
  }
  double y(std::size_t row) const { return top_ + pitch_ * static_cast<double>(row); }
  double bar_y(std::size_t row) const { return y(row) + (is_detailed_ ? 16 : 0); }

  std::string headline() const {
    const Timeline& timeline = *shown_.timeline;
    std::string text =
        fmt::format("{}{}: {} a step", timeline.name,
                    timeline.caption.empty() ? "" : " (" + timeline.caption + ")",
                    format_seconds(timeline.step), frame_.is_narrow() ? "" : " a step");
    constexpr double kIdentical = 0.1;
    const double seconds = 1e-9 * static_cast<double>(shown_.end - shown_.begin);
    if (std::abs(seconds - timeline.step.value) > kIdentical * timeline.step.value)
      text += fmt::format(", this one {}", format_seconds(Seconds(seconds)));
    return text;
  }

  /// Returns "stage 0.1: computes 60 %, waits 39 %, most for b:0"; where narrow, one of the two.
  std::string summary(std::size_t device) const {
    const DeviceTimes& times = shown_.times[device];
    const double all =
        std::max(1.0, static_cast<double>(times.computing + times.waiting + times.other));
    std::string computes =
        fmt::format("computes {:.0f} %", 100 * static_cast<double>(times.computing) / all);
    std::string waits;
    const auto late = std::max_element(times.waiting_for.begin(), times.waiting_for.end());
    if (late != times.waiting_for.end() && static_cast<double>(*late) > 0.005 * all)
      waits =
          fmt::format("waits {:.0f} %, most for {}", 100 * static_cast<double>(times.waiting) / all,
                      trace_.devices[static_cast<std::size_t>(late - times.waiting_for.begin())]);
    const std::string& place = shown_.places[device];
    if (frame_.is_narrow() && !place.empty())
      return place + ": " + (waits.empty() ? computes : waits);
    return (place.empty() ? "" : place + ": ") + computes + (waits.empty() ? "" : ", ") + waits;
  }

  void draw_words(std::size_t row) {
    const std::size_t device = rows_[row];
    const std::string& name = trace_.devices[device];
    if (is_detailed_ && frame_.is_narrow()) {
      const char* then = shown_.places[device].empty() ? ": " : ", ";
      svg_.text(0, y(row) + 11, "name halo", fit_bold(name + then + summary(device), frame_.width));
    } else if (is_detailed_) {
      svg_.text(left_ - 8, bar_y(row) + 14, "name end", fit_bold(name, kGutter - 8));
      svg_.text(left_, y(row) + 11, "soft halo", summary(device));
    } else if (!frame_.is_narrow()) {
      svg_.text(left_ - 8, bar_y(row) + 7, "tiny end", fit(name, kGutter - 8));
    }
  }

  void draw_row(std::size_t row) {
    const std::size_t device = rows_[row];
    const std::string& name = trace_.devices[device];
    svg_.rect(left_, bar_y(row), x(shown_.end) - left_, bar_, "rail",
              name + ": " + summary(device));
    for (const Wait& wait : shown_.waits)
      if (wait.device == static_cast<int>(device)) draw_wait(row, wait);
    if (!is_detailed_) draw_exchanges(row, device);
    draw_work(row, device);
    if (is_detailed_) draw_exchanges(row, device);
  }

  void draw_wait(std::size_t row, const Wait& wait) {
    const double width = x(wait.end) - x(wait.begin);
    if (width < 0.4) return;
    const std::string& late = trace_.devices[static_cast<std::size_t>(wait.late)];
    svg_.rect(
        x(wait.begin), bar_y(row), width, bar_, "wait",
        is_detailed_
            ? fmt::format(
                  "waits {} for {}",
                  format_seconds(Seconds(1e-9 * static_cast<double>(wait.end - wait.begin))), late)
            : "");
    if (!is_detailed_) return;
    std::string words = "waits for " + late;
    if (fit(words, width - 6) != words) words = late;
    if (fit(words, width - 6) == words)
      svg_.text(x(wait.begin) + width / 2, bar_y(row) + 14, "mid on-wait", words);
  }

  Work work_in(const Interval& interval) const {
    const auto device = static_cast<std::size_t>(interval.device);
    const std::size_t instruction = interval.instruction.index();
    const auto& passes = shown_.timeline->passes;
    Work work;
    if (device < passes.size() && instruction < passes[device].size())
      work.pass = passes[device][instruction];
    if (work.is_of_pass() || !is_detailed_) return work;
    work.pass = {};
    work.layer = layer_of(trace_.names[device][instruction]);
    return work;
  }

  std::vector<Stretch> work_of(std::size_t device) const {
    std::vector<Stretch> stretches;
    for (const Interval& each : trace_.intervals)
      if (each.device == static_cast<int>(device) && each.lane == Lane::kCompute &&
          each.step == shown_.step && each.bytes == 0)
        append(stretches, {x(each.begin), x(each.end), work_in(each)});
    if (!is_detailed_) return stretches;
    // A range narrower than a pixel joins the one before it.
    std::vector<Stretch> shown;
    for (Stretch& each : stretches) {
      if (each.end - each.begin < 1 && !shown.empty() && each.begin - shown.back().end < kGap)
        shown.back().end = each.end;
      else
        append(shown, std::move(each));
    }
    return shown;
  }

  static constexpr double kGap = 0.6;  // pixels; smaller gaps are invisible

  /// Appends a range, or extends the last one where it follows it with the same work.
  static void append(std::vector<Stretch>& stretches, Stretch next) {
    if (!stretches.empty() && next.begin - stretches.back().end < kGap &&
        stretches.back().work == next.work)
      stretches.back().end = next.end;
    else
      stretches.push_back(std::move(next));
  }

  void draw_work(std::size_t row, std::size_t device) {
    std::string forward, backward;  // ranges too narrow for words
    bool is_odd = false;
    for (const Stretch& each : work_of(device)) {
      const double width = std::max(0.5, each.end - each.begin);
      if (!is_detailed_) {
        (each.work.pass.is_backward ? backward : forward) +=
            fmt::format("M{} {}h{}v{}h-{}z", coordinate(each.begin), coordinate(bar_y(row)),
                        coordinate(width), bar_, coordinate(width));
        continue;
      }
      is_odd = !is_odd;
      std::string classes = each.work.is_of_pass() || is_odd ? "work" : "work two";
      if (each.work.pass.is_backward) classes = "back";
      if (each.work.is_of_pass() && width > 3) classes += " part";
      svg_.rect(each.begin, bar_y(row), width, bar_, classes, width > 2 ? each.work.title() : "");
      const std::string words = each.work.words();
      if ((words.size() > 1 || each.work.is_of_pass()) && fit(words, width - 4) == words)
        svg_.text(each.begin + width / 2, bar_y(row) + 14, "mid on-work", words);
    }
    if (!forward.empty()) svg_.path(forward, "work");
    if (!backward.empty()) svg_.path(backward, "back");
  }

  void draw_exchanges(std::size_t row, std::size_t device) {
    // Drawn below the bar; without room there, in the part that work leaves free.
    const double top = bar_y(row) + (is_detailed_ ? bar_ + 1 : 2);
    std::string path;
    double last = -1;
    for (const Interval& each : trace_.intervals) {
      if (each.device != static_cast<int>(device) || each.step != shown_.step ||
          (each.lane == Lane::kCompute && each.bytes == 0))
        continue;
      const double begin = std::max(last, x(each.begin)), end = std::max(begin + 0.8, x(each.end));
      if (x(each.end) <= last) continue;
      path += fmt::format("M{} {}h{}v5h-{}z", coordinate(begin), coordinate(top),
                          coordinate(end - begin), coordinate(end - begin));
      last = end;
    }
    if (!path.empty()) svg_.path(path, "exchange", "exchanges under way");
  }

  /// Draws an arrow from the late device to the waiting one, where it is visible.
  void draw_arrows() {
    if (!is_detailed_) return;
    constexpr double kShows = 0.015;  // of a step
    std::string path;
    for (const Wait& wait : shown_.waits) {
      if (static_cast<double>(wait.end - wait.begin) <
          kShows * static_cast<double>(shown_.end - shown_.begin))
        continue;
      const auto from = static_cast<std::size_t>(wait.late);
      const auto to = static_cast<std::size_t>(wait.device);
      const bool is_down = from < to;
      const double begin = bar_y(from) + (is_down ? bar_ : 0);
      const double end = bar_y(to) + (is_down ? 0 : bar_), at = x(wait.end);
      const double back = is_down ? -5 : 5;
      path += fmt::format("M{0} {1}V{2}m-3 {3}l3 {4}l3 {3}", coordinate(at), coordinate(begin),
                          coordinate(end), back, -back);
    }
    if (!path.empty()) svg_.path(path, "arrow", "from who is late to who waits");
  }

  Svg& svg_;
  const ShownStep& shown_;
  const trace::Trace& trace_;
  Frame frame_;
  std::vector<std::size_t> rows_;
  bool is_detailed_ = true;
  double left_ = 0, per_ns_ = 0, top_ = 0, bar_ = 20, pitch_ = 46;
};

void draw_axis(Svg& svg, Frame frame, double seconds, double y) {
  const double left = frame.is_narrow() ? 0 : kGutter;
  const double width = frame.width - left - (frame.is_narrow() ? 0 : kRight);
  const int ticks = frame.is_narrow() ? 3 : 6;
  for (int i = 0; i <= ticks; ++i) {
    const double x = left + width * i / ticks;
    svg.line(x, y, x, y + 4, "axis");
    svg.text(x, y + 16,
             i == 0       ? "soft"
             : i == ticks ? "soft end"
                          : "soft mid",
             format_seconds(Seconds(seconds * i / ticks)));
  }
}

struct Key {
  const char *classes, *says;
};

std::vector<Key> find_keys(const std::vector<ShownStep>& steps) {
  bool by_layer = false, by_pass = false;
  for (const ShownStep& each : steps) {
    bool has_passes = false;
    for (const std::vector<Pass>& passes : each.timeline->passes)
      has_passes = has_passes || !passes.empty();
    (has_passes ? by_pass : by_layer) = true;
  }
  std::vector<Key> keys;
  if (by_layer) keys.push_back({"work", "computes, by layer"});
  if (by_pass) keys.push_back({"work part", "micro-batch 0, 1, ... forward"});
  if (by_pass) keys.push_back({"back part", "0b, 1b, ... backward"});
  keys.push_back({"wait", "waits for another"});
  keys.push_back({"exchange", "exchange under way"});
  return keys;
}

/// Draws a legend where the page's own is absent.
void draw_keys(Svg& svg, const std::vector<Key>& keys, double y) {
  double x = kGutter;
  for (const Key& each : keys) {
    svg.rect(x, y, 17, 11, each.classes);
    svg.text(x + 24, y + 10, "soft", each.says);
    x += 50 + 6.2 * static_cast<double>(std::string_view(each.says).size());
  }
}

/// `below`: pixels to leave below for something else.
Svg draw_all(const std::vector<ShownStep>& steps, Frame frame, double below = 0) {
  double seconds = 0, height = 26 + below;
  for (const ShownStep& each : steps) {
    seconds = std::max(seconds, 1e-9 * static_cast<double>(each.end - each.begin));
    height += Rows::height(*each.timeline, frame);
  }
  Svg svg(frame.width, height, "steps of all devices on one clock");
  double top = 0;
  for (const ShownStep& each : steps) {
    Rows(svg, each, frame, seconds).draw(top);
    top += Rows::height(*each.timeline, frame);
  }
  draw_axis(svg, frame, seconds, top);
  if (below > 0) draw_keys(svg, find_keys(steps), top + 30);
  return svg;
}

std::vector<ShownStep> shown_steps(const ReportData& report_data) {
  std::vector<ShownStep> steps;
  for (const Timeline& each : report_data.timelines)
    if (!each.trace.steps.empty()) steps.push_back(choose_step(each, report_data.stages));
  return steps;
}

double in_seconds(Nanoseconds time, const DeviceTimes& of) {
  return of.steps > 0 ? 1e-9 * static_cast<double>(time) / static_cast<double>(of.steps) : 0;
}

Table table_of_times(const ReportData& report_data) {
  Table table{{"timeline", "device", "computes", "waits", "for whom", "exchange, pauses"}, {}};
  for (std::size_t t = 0; t < report_data.timelines.size(); ++t) {
    const Timeline& timeline = report_data.timelines[t];
    const trace::Trace& trace = timeline.trace;
    const std::vector<DeviceTimes> times = sum_times(trace, find_waits(trace, timeline.peers));
    for (std::size_t d = 0; d < times.size(); ++d) {
      const std::string place = fmt::format("/timelines/{}/devices/{}/", t, d);
      std::string late;
      for (std::size_t other = 0; other < times.size(); ++other)
        if (times[d].waiting_for[other] * 20 > times[d].waiting)  // a twentieth of it or more
          late += (late.empty() ? "" : ", ") + trace.devices[other];
      if (std::count(late.begin(), late.end(), ',') > 3) late = "several";
      table.rows.push_back(
          {{report_data.timelines[t].name},
           {trace.devices[d]},
           seconds_cell(place + "computing_s", in_seconds(times[d].computing, times[d])),
           seconds_cell(place + "waiting_s", in_seconds(times[d].waiting, times[d])),
           {late},
           seconds_cell(place + "other_s", in_seconds(times[d].other, times[d]))});
    }
  }
  return table;
}

}  // namespace

std::optional<Picture> draw_timelines(const ReportData& report_data) {
  const std::vector<ShownStep> steps = shown_steps(report_data);
  if (steps.empty()) return std::nullopt;
  Picture picture{.id = "step", .title = "A step, device by device"};
  picture.says =
      waiting_sentence(report_data) +
      " Time goes from left to right, by one clock for all; arrows go from who is late to "
      "who waits.";
  picture.wide = draw_all(steps, kWide).str();
  picture.narrow = draw_all(steps, kNarrow).str();
  picture.table = table_of_times(report_data);
  for (const Key& each : find_keys(steps)) picture.legend += legend_entry(each.classes, each.says);
  for (const ShownStep& each : steps)
    if (each.timeline->trace.devices.size() > kMostRows)
      picture.says += fmt::format(" The first {} of {} devices are drawn.", kMostRows,
                                  each.timeline->trace.devices.size());
  return picture;
}

std::optional<std::string> draw_timelines_alone(const ReportData& report_data,
                                                std::string_view head) {
  const std::vector<ShownStep> steps = shown_steps(report_data);
  if (steps.empty()) return std::nullopt;
  return draw_all(steps, kWide, 20).file(head);
}

}  // namespace motley::report
