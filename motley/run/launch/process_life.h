#pragma once

#include <cstdint>
#include <string>

namespace motley::run {

/// Tells whether a process of that number runs on this machine. False for one that has ended, even
/// if its parent has not collected it yet.
bool is_alive(std::int64_t pid);

/// Does the same for the process that wrote a file. A process that began after the file's last
/// write is another one that reuses the number.
bool is_writer_alive(std::int64_t pid, const std::string& path);

}  // namespace motley::run
