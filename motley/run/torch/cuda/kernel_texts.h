#pragma once

#include <vector>

namespace motley::run {

/// A header's name in includes, and its text.
struct KernelText {
  const char* name;
  const char* text;
};

/// The headers that kernels are made of; cmake/torch.cmake writes them into the library.
const std::vector<KernelText>& kernel_texts();

}  // namespace motley::run
