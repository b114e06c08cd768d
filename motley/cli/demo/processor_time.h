#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace motley::cli {

/// What the processors that this process may use have done since some moment, in seconds.
struct ProcessorTime {
  double passed = 0;  ///< by the clock on the wall
  double busy = 0;    ///< of all of them together; what a virtual machine was not given counts
  double own = 0;     ///< of it for this process, and those that it started and that have ended
};

/// Now. Where the system does not say, nobody was busy.
ProcessorTime read_processor_time();

/// How many processors others kept busy from one moment to another: 1.5 of two in which they had
/// three seconds of them. 0 at least: what has not ended yet was counted before its end.
double others_between(const ProcessorTime& begin, const ProcessorTime& end);

/// Ticks for which these processors were busy, by the text of /proc/stat. Linear.
std::int64_t busy_ticks(std::string_view stat, const std::vector<int>& processors);

}  // namespace motley::cli
