#pragma once

#include <string>
#include <string_view>

namespace motley::report {

/// Escapes text for HTML and SVG, also inside quotes.
std::string escape(std::string_view text);

/// A picture of `width` x `height` pixels, built piece by piece. Classes are from style.cc. Texts
/// and titles are escaped here; a title is the tooltip.
class Svg {
 public:
  /// `label` describes the picture for screen readers.
  Svg(double width, double height, std::string_view label);

  void rect(double x, double y, double width, double height, std::string_view classes,
            std::string_view title = "");
  void line(double x1, double y1, double x2, double y2, std::string_view classes);
  /// `classes` may contain "mid" or "end": the part of the text at x.
  void text(double x, double y, std::string_view classes, std::string_view text);
  void path(std::string_view data, std::string_view classes, std::string_view title = "");
  std::string str() &&;
  /// Returns it as a file: with a background, a margin and `head` (styles, patterns).
  std::string file(std::string_view head) &&;

 private:
  double width_ = 0, height_ = 0;
  std::string out_;
};

/// Prints a coordinate with at most one decimal.
std::string coordinate(double value);

/// A screen's width: pictures are drawn for wide and narrow ones, so that text stays readable.
struct Frame {
  double width = 0;
  bool is_narrow() const { return width < 600; }
};
inline constexpr Frame kWide{900}, kNarrow{358};

}  // namespace motley::report
