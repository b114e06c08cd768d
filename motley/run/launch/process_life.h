#pragma once

#include <cstdint>
#include <string>

namespace motley::run {

/// Is there a process of that number on this machine? False for one that has ended, also when its
/// parent has not collected it yet.
bool is_alive(std::int64_t pid);

/// The same of the process that wrote a file. One that began after the file was last written is
/// another, which was given the number anew.
bool is_writer_alive(std::int64_t pid, const std::string& path);

}  // namespace motley::run
