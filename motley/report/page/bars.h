#pragma once

#include <optional>
#include <string>
#include <vector>

#include "motley/report/page/svg.h"

namespace motley::report {

/// A part of a bar; classes are from style.cc.
struct BarPart {
  double length = 0;
  std::string classes, title;
};
/// A bar of consecutive parts, with a name before and words after it.
struct Bar {
  std::string name;
  std::vector<BarPart> parts;
  std::string words;
  std::optional<double> mark = {};  ///< a limit, drawn as a line; omitted beyond the scale
};

/// Draws bars below each other on one scale. A narrow frame puts names and words above them.
std::string draw_bars(const std::vector<Bar>& bars, double scale, Frame frame,
                      std::string_view label);

/// Returns the classes of the n-th kind of part; kinds differ without colour too.
std::string part_class(std::size_t n);

}  // namespace motley::report
