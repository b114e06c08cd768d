#pragma once

#include <string>

namespace motley::testing {

/// A file of the sources, or of the build, by its path there. The two folders are compiled into one
/// small file of each build (CMakeLists.txt, motley_places), so that every other object is the same
/// wherever the sources lie, and a compiler's cache serves all clones.
std::string source_path(const std::string& path);
std::string build_path(const std::string& path);

}  // namespace motley::testing
