#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "motley/base/units.h"
#include "motley/program/program.h"

namespace motley::program {

/// Where a device program exchanges with others, and what waits. Positions are instruction indices.
///
/// The tail follows forward, backward and packing: the last run of compute instructions that only
/// unpack, update, assign and report. An exchange for which an earlier compute instruction waits is
/// *blocking* (batch norm statistics, label counts). It delays every member by its duration less
/// its slack, the compute time between the instruction it waits for and the one that waits for it.
/// The tail waits for all other exchanges.
struct StepShape {
  struct Exchange {
    std::size_t position = 0;
    std::string op;
    Bytes bytes;
    std::size_t after = 0;  ///< it is ready after the compute instructions before this position
    bool blocking = false;
    std::size_t waiter = 0;  ///< the first compute instruction that waits for a blocking one
  };
  std::vector<Exchange> exchanges;  ///< in lane order
  std::size_t tail = 0;             ///< position where the tail begins
  /// For each compute instruction of the tail: its position, and the last non-blocking exchange
  /// (counted among these) that it or an earlier one waits for; -1 if none.
  std::vector<std::pair<std::size_t, int>> updates;
  std::vector<bool> computes;  ///< by position: whether it is on the compute lane
};

StepShape find_step_shape(const program::DeviceProgram& program);

}  // namespace motley::program
