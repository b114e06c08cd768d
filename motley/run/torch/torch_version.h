#pragma once

#include <string>

#include "motley/base/result.h"

namespace motley::run {

/// PyTorch's versions: of the headers at build time and of the loaded library. Neither asks ATen.
std::string built_torch_version();   ///< "2.15.0"
std::string loaded_torch_version();  ///< "2.15.0"

/// Checks that both have the same minor version (usage error): others assert or crash later.
Result<void> check_torch_version();
Result<void> compare_torch_versions(const std::string& built, const std::string& loaded);

}  // namespace motley::run
