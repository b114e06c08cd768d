#pragma once

#include <string>

namespace motley::testing {

/// Return the path of a file of the sources, or of the build. The two folders are compiled into one
/// small file per build (CMakeLists.txt, motley_places), so that all other objects are identical
/// wherever the sources are, and one compiler cache serves all clones.
std::string source_path(const std::string& path);
std::string build_path(const std::string& path);

}  // namespace motley::testing
