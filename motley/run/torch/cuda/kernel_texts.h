#pragma once

#include <vector>

namespace motley::run {

/// A header's name in includes, and its text.
struct KernelText {
  const char* name;
  const char* text;
};

/// Returns the headers that kernels consist of; cmake/torch.cmake embeds them in the library.
const std::vector<KernelText>& kernel_texts();

}  // namespace motley::run
