#include "motley/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace motley {

void check_failed(const char* file, int line, const char* expression) {
  std::fprintf(stderr, "%s:%d: check failed: %s\n", file, line, expression);
  std::fflush(stderr);
  std::abort();
}

}  // namespace motley
