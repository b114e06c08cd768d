#pragma once

#include <vector>

namespace motley::run {

/// Processors that this process may use, ascending.
std::vector<int> usable_processors();

/// A processor for each emulated device, so that none waits for another's work: devices on one
/// processor together need at most all of its time. `speeds` are shares of a processor. The largest
/// goes first to where most is left. Empty when they do not fit so.
std::vector<int> place_on_processors(const std::vector<double>& speeds,
                                     const std::vector<int>& processors);

/// Keeps the calling thread, and threads that it starts, to one processor, where it gives way after
/// 0.1 ms to others that wait: with the kernel's 3 ms a device would wait long for its neighbour.
/// What the kernel does not know or allow is left out.
void keep_to_processor(int processor);

/// Lets the calling thread, and what it starts, use the processors that the process came with.
void use_all_processors();

}  // namespace motley::run
