#pragma once

#include <string_view>

namespace motley::report {

/// What every picture has, on a page or alone: its colors (light and dark) and styles, and the
/// patterns that it is filled with, as `defs` of SVG.
extern const std::string_view kPictureStyle, kPatterns;

/// What every page has beside these: styles (print, 390 pixels), and scripts: a click enlarges a
/// picture; a live page takes what its server sends.
extern const std::string_view kPageStyle, kZoomScript, kLiveScript;

}  // namespace motley::report
