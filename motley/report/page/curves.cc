#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "motley/base/text.h"
#include "motley/report/page/picture.h"

namespace motley::report {
namespace {

constexpr double kHeight = 220, kLeft = 64, kBottom = 26, kTop = 12, kRightSpace = 14;

std::string value_text(const Curve& curve, double value) {
  return curve.unit == "s" ? format_seconds(Seconds(value)) : fmt::format("{:.4g}", value);
}

/// The finite points and their range.
struct Span {
  double first = 0, last = 1, low = 0, high = 1;
};

/// Returns the largest value shown: a few very slow steps would leave no room for the others.
double most_shown(const Curve& curve) {
  constexpr double kTimes = 5;  // of the median
  std::vector<double> values;
  for (const auto& [step, value] : curve.points)
    if (std::isfinite(value)) values.push_back(value);
  if (values.empty()) return std::numeric_limits<double>::max();
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return kTimes * std::max(*middle, curve.expected.value_or(0));
}

Span span_of(const Curve& curve) {
  Span span{std::numeric_limits<double>::max(), 0, std::numeric_limits<double>::max(),
            std::numeric_limits<double>::lowest()};
  const auto add = [&](double value) {
    span.low = std::min(span.low, value), span.high = std::max(span.high, value);
  };
  for (const auto& [step, value] : curve.points) {
    if (!std::isfinite(value)) continue;
    span.first = std::min(span.first, static_cast<double>(step));
    span.last = std::max(span.last, static_cast<double>(step));
    add(value);
  }
  if (curve.expected) add(*curve.expected);
  if (curve.unit == "s") span.low = 0;  // times are compared from zero
  if (curve.unit == "s") span.high = std::min(span.high, most_shown(curve));
  if (span.low > span.high) return {};
  const double room = span.high > span.low ? 0.05 * (span.high - span.low)
                                           : std::max(0.1, 0.1 * std::abs(span.high));
  span.high += room;
  if (curve.unit != "s") span.low = span.low < 0 ? span.low - room : std::max(0.0, span.low - room);
  span.last = std::max(span.last, span.first + 1);
  return span;
}

/// Draws points as a line; of many, the least and most per column of pixels, to keep outliers.
class Outline {
 public:
  void add(double x, double y) {
    const auto column = static_cast<std::int64_t>(x);
    if (column != column_) end_column();
    column_ = column;
    if (count_++ == 0) x_ = x, first_ = low_ = high_ = y;
    low_ = std::min(low_, y), high_ = std::max(high_, y), last_ = y, last_x_ = x;
  }
  std::string str() {
    end_column();
    return path_;
  }

 private:
  void put(double x, double y) {
    path_ += fmt::format("{}{} {}", path_.empty() ? "M" : "L", coordinate(x), coordinate(y));
  }
  void end_column() {
    if (count_ == 0) return;
    put(x_, first_);
    if (count_ > 2 && low_ < std::min(first_, last_)) put(x_, low_);
    if (count_ > 2 && high_ > std::max(first_, last_)) put(x_, high_);
    if (count_ > 1) put(last_x_, last_);
    count_ = 0;
  }
  std::string path_;
  std::int64_t column_ = -1;
  int count_ = 0;
  double x_ = 0, last_x_ = 0, first_ = 0, last_ = 0, low_ = 0, high_ = 0;
};

std::string draw_curve(const Curve& curve, Frame frame) {
  const Span span = span_of(curve);
  const double width = frame.width - kLeft - kRightSpace, height = kHeight - kTop - kBottom;
  const auto x = [&](double step) {
    return kLeft + width * (step - span.first) / (span.last - span.first);
  };
  const auto y = [&](double value) {
    return kTop + height * (span.high - value) / (span.high - span.low);
  };
  Svg svg(frame.width, kHeight, curve.name + " by step");
  constexpr int kLines = 4;
  for (int i = 0; i <= kLines; ++i) {
    const double value = span.low + (span.high - span.low) * i / kLines;
    svg.line(kLeft, y(value), kLeft + width, y(value), "grid");
    svg.text(kLeft - 6, y(value) + 4, "soft end", value_text(curve, value));
  }
  const int ticks = frame.is_narrow() ? 2 : 5;
  for (int i = 0; i <= ticks; ++i) {
    const double step = std::round(span.first + (span.last - span.first) * i / ticks);
    svg.text(x(step), kHeight - 8, i == ticks ? "soft end" : "soft mid",
             fmt::format("{}{:.0f}", i == 0 ? "step " : "", step));
  }
  if (curve.expected)
    svg.line(kLeft, y(*curve.expected), kLeft + width, y(*curve.expected), "limit dashed");
  Outline outline;
  constexpr std::size_t kFew = 40;
  for (const auto& [step, value] : curve.points) {
    if (!std::isfinite(value)) continue;
    const double shown = std::min(value, span.high);
    outline.add(x(static_cast<double>(step)), y(shown));
    if (curve.points.size() <= kFew)
      svg.rect(x(static_cast<double>(step)) - 2, y(shown) - 2, 4, 4, "dot",
               fmt::format("step {}: {}", step, value_text(curve, value)));
  }
  svg.path(outline.str(), "curve");
  if (curve.expected)
    svg.text(kLeft + width, y(*curve.expected) - 5, "end halo",
             "predicted " + value_text(curve, *curve.expected));
  return std::move(svg).str();
}

Table curve_table(const Curve& curve, std::size_t number) {
  constexpr std::size_t kMost = 10;
  Table table{{"step", curve.name}, {}};
  const std::size_t n = curve.points.size();
  const std::size_t stride = std::max<std::size_t>(1, n / kMost);
  for (std::size_t i = 0; i < n; i = (i + stride < n || i + 1 == n) ? i + stride : n - 1) {
    const auto& [step, value] = curve.points[i];
    Cell cell = number_cell(fmt::format("/curves/{}/points/{}/1", number, i), value);
    cell.text = value_text(curve, value);
    if (!std::isfinite(value)) cell.place.clear();  // JSON has null there
    table.rows.push_back({{std::to_string(step)}, std::move(cell)});
  }
  return table;
}

}  // namespace

std::vector<Picture> draw_curves(const ReportData& report_data) {
  std::vector<Picture> pictures;
  for (std::size_t i = 0; i < report_data.curves.size(); ++i) {
    const Curve& curve = report_data.curves[i];
    Picture picture{.id = fmt::format("curve-{}", i)};
    picture.title = curve.name;
    if (!picture.title.empty() && picture.title[0] >= 'a' && picture.title[0] <= 'z')
      picture.title[0] = static_cast<char>(picture.title[0] - 'a' + 'A');
    picture.title += ", step by step";
    if (curve.points.empty()) {
      picture.says = "No step is done yet.";
      pictures.push_back(std::move(picture));
      continue;
    }
    const auto& [first_step, first] = curve.points.front();
    const auto& [last_step, last] = curve.points.back();
    picture.says = fmt::format("{} at step {}, {} at step {}.", value_text(curve, first),
                               first_step, value_text(curve, last), last_step);
    const double most = most_shown(curve);
    const auto is_cut = [&](const auto& point) { return curve.unit == "s" && point.second > most; };
    if (const auto cut = std::count_if(curve.points.begin(), curve.points.end(), is_cut); cut > 0)
      picture.says +=
          fmt::format(" {} of {} points are beyond the upper end.", cut, curve.points.size());
    picture.wide = draw_curve(curve, kWide);
    picture.narrow = draw_curve(curve, kNarrow);
    picture.table = curve_table(curve, i);
    pictures.push_back(std::move(picture));
  }
  return pictures;
}

}  // namespace motley::report
