#include "motley/report/page/bars.h"

#include <fmt/format.h>

#include <algorithm>

#include "motley/report/page/picture.h"

namespace motley::report {
namespace {

constexpr double kNameWidth = 184, kWordsWidth = 260, kBarHeight = 18;

void draw_parts(Svg& svg, const Bar& bar, double x, double y, double width, double scale) {
  svg.rect(x, y, width, kBarHeight, "rail");
  double at = x;
  for (const BarPart& part : bar.parts) {
    const double length = std::max(0.0, width * part.length / scale);
    if (length < 0.05) continue;
    svg.rect(at, y, std::min(length, x + width - at), kBarHeight, part.classes, part.title);
    at += length;
  }
  if (bar.mark && *bar.mark <= scale) {
    const double mark = x + width * *bar.mark / scale;
    svg.line(mark, y - 3, mark, y + kBarHeight + 3, "limit");
  }
}

}  // namespace

std::string part_class(std::size_t n) { return fmt::format("part p{}", n % 10); }

std::string draw_bars(const std::vector<Bar>& bars, double scale, Frame frame,
                      std::string_view label) {
  const bool narrow = frame.is_narrow();
  const double pitch = narrow ? kBarHeight + 24 : kBarHeight + 8;
  scale = scale > 0 ? scale : 1;
  Svg svg(frame.width, pitch * static_cast<double>(bars.size()) + 6, label);
  for (std::size_t i = 0; i < bars.size(); ++i) {
    const Bar& bar = bars[i];
    const double y = 4 + pitch * static_cast<double>(i);
    if (narrow) {
      svg.text(0, y + 11, "name", fit_bold(bar.name, 0.42 * frame.width));
      svg.text(frame.width, y + 11, "end", fit(bar.words, 0.57 * frame.width));
      draw_parts(svg, bar, 0, y + 16, frame.width, scale);
    } else {
      const double width = frame.width - kNameWidth - kWordsWidth;
      svg.text(kNameWidth - 10, y + 13, "name end", fit_bold(bar.name, kNameWidth - 10));
      draw_parts(svg, bar, kNameWidth, y, width, scale);
      svg.text(kNameWidth + width + 10, y + 13, "", fit(bar.words, kWordsWidth - 10));
    }
  }
  return std::move(svg).str();
}

}  // namespace motley::report
