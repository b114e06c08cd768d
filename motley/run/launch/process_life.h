#pragma once

#include <cstdint>
#include <string>

namespace motley::run {

/// Tells whether a process of that number runs on this machine; false for a zombie.
bool is_alive(std::int64_t pid);

/// Does the same for the writer of a file: a process that began after the last write is another.
bool is_writer_alive(std::int64_t pid, const std::string& path);

}  // namespace motley::run
