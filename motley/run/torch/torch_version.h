#pragma once

#include <string>

#include "motley/base/result.h"

namespace motley::run {

/// Versions of PyTorch: of the headers at the build and of the library that is loaded. Neither asks
/// ATen anything, so that a wrong library does no harm first.
std::string built_torch_version();   ///< "2.15.0"
std::string loaded_torch_version();  ///< "2.15.0"

/// Usage error unless both have the same minor version: others assert or crash later.
Result<void> check_torch_version();
/// The same for any two versions.
Result<void> compare_torch_versions(const std::string& built, const std::string& loaded);

}  // namespace motley::run
