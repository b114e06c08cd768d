#pragma once

namespace motley {

/// Prints `file:line: check failed: expression` to stderr and aborts. Called by MOTLEY_CHECK only.
[[noreturn]] void check_failed(const char* file, int line, const char* expression);

}  // namespace motley

/// States an invariant of our own code, also in release builds. No input may break it.
#define MOTLEY_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::motley::check_failed(__FILE__, __LINE__, #condition))
