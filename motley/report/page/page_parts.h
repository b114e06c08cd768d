#pragma once

#include <string_view>

namespace motley::report {

/// Common to all pictures: colors (light and dark) and styles, and fill patterns as SVG `defs`.
extern const std::string_view kPictureStyle, kPatterns;

/// Parts of every page: styles (print, 390 pixels) and scripts. A click enlarges a picture; a live
/// page receives what its server sends.
extern const std::string_view kPageStyle, kZoomScript, kLiveScript;

}  // namespace motley::report
