#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <string>

namespace motley::run {

/// Returns the message of a PyTorch exception for people: the first line, without backtrace, c10d's
/// source position and its general advice. Inline, because the CUDA library uses it too.
inline std::string failure_text(const std::exception& fault) {
  const auto* error = dynamic_cast<const c10::Error*>(&fault);
  std::string text = error != nullptr ? error->what_without_backtrace() : fault.what();
  text = text.substr(0, text.find('\n'));
  // "[/path/file.cc:123] message"
  if (const std::size_t end = text.find("] "); text.starts_with("[/") && end != std::string::npos)
    text.erase(0, end + 2);
  text = text.substr(0, text.find(". This is typically caused by"));
  return text;
}

}  // namespace motley::run
