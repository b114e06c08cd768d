#pragma once

#include <vector>

namespace motley::run {

/// Returns the processors that this process may use, ascending.
std::vector<int> usable_processors();

/// Assigns each emulated device a processor so that none waits for another: the devices of one need
/// at most all of its time. `speeds`: shares of a processor. Places the largest first, where most
/// is left. Empty: they do not fit.
std::vector<int> place_on_processors(const std::vector<double>& speeds,
                                     const std::vector<int>& processors);

/// Pins the calling thread, and threads that it starts, to one processor, where it yields to others
/// after 0.1 ms: with the kernel's 3 ms a neighbour would wait long. Skips what the kernel lacks.
void keep_to_processor(int processor);

/// Lets the calling thread, and threads that it starts, use all processors of the process again.
void use_all_processors();

}  // namespace motley::run
