#pragma once

#include <string_view>

namespace motley::report {

/// What every page has: its styles (light, dark, print, 390 pixels), the patterns that pictures
/// are filled with, and scripts: a click enlarges a picture; a live page takes what its server
/// sends.
extern const std::string_view kPageStyle, kPagePatterns, kZoomScript, kLiveScript;

}  // namespace motley::report
