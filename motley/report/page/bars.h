#pragma once

#include <optional>
#include <string>
#include <vector>

#include "motley/report/page/svg.h"

namespace motley::report {

/// A part of a bar; classes are those of style.cc.
struct BarPart {
  double length = 0;
  std::string classes, title;
};
/// A bar of parts, one after the other, with a name before and words behind it.
struct Bar {
  std::string name;
  std::vector<BarPart> parts;
  std::string words;
  std::optional<double> mark = {};  ///< a limit, as a line across; beyond the scale it is left out
};

/// Bars below each other, all by one scale. In a narrow frame names and words stand above them.
std::string draw_bars(const std::vector<Bar>& bars, double scale, Frame frame,
                      std::string_view label);

/// Classes of the n-th of several things that are to be told apart, also without colour.
std::string part_class(std::size_t n);

}  // namespace motley::report
