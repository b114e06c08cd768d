#pragma once

#include <string_view>

namespace motley::report {

/// Common to all pictures: colors (light and dark) and styles, and fill patterns as SVG `defs`.
extern const std::string_view kPictureStyle, kPatterns;

/// Page styles (print, 390 pixels) and scripts: click to enlarge; live updates from the server.
extern const std::string_view kPageStyle, kZoomScript, kLiveScript;

}  // namespace motley::report
