#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace motley::cli {

/// The work of the processors that this process may use, since an arbitrary moment, in seconds.
struct ProcessorTime {
  double passed = 0;
  double busy = 0;  ///< of all of them; includes time stolen from a virtual machine
  double own = 0;   ///< of it, for this process and its ended children
};

/// Reads the current times. A system without them counts as idle.
ProcessorTime read_processor_time();

/// Returns how many processors others kept busy: 1.5 if they used three processor seconds in two.
/// At least 0, because `own` gets all of a child's time when the child ends.
double others_between(const ProcessorTime& begin, const ProcessorTime& end);

/// Returns the busy ticks of these processors in the text of /proc/stat. Linear.
std::int64_t busy_ticks(std::string_view stat, const std::vector<int>& processors);

}  // namespace motley::cli
