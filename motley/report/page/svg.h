#pragma once

#include <string>
#include <string_view>

namespace motley::report {

/// Text as HTML and SVG may hold it, also inside quotes: nothing in it is markup.
std::string escape(std::string_view text);

/// A picture of so many pixels, put together piece by piece. Classes are those of style.cc; texts
/// and titles are escaped here. A title is what a pointer shows.
class Svg {
 public:
  /// `label` says what it shows, to who cannot see it.
  Svg(double width, double height, std::string_view label);

  void rect(double x, double y, double width, double height, std::string_view classes,
            std::string_view title = "");
  void line(double x1, double y1, double x2, double y2, std::string_view classes);
  /// `classes` may hold "mid" or "end" for where x is.
  void text(double x, double y, std::string_view classes, std::string_view text);
  void path(std::string_view data, std::string_view classes, std::string_view title = "");
  /// The whole element.
  std::string str() &&;
  /// The same as a file of its own: with a ground, a margin and what `head` has (styles, patterns).
  std::string file(std::string_view head) &&;

 private:
  double width_ = 0, height_ = 0;
  std::string out_;
};

/// A number for coordinates: at most one digit after the point.
std::string coordinate(double value);

/// Wide and narrow: pictures are drawn for screens of either kind, so that text stays readable.
struct Frame {
  double width = 0;
  bool is_narrow() const { return width < 600; }
};
inline constexpr Frame kWide{900}, kNarrow{358};

}  // namespace motley::report
