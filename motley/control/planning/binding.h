#pragma once

#include <string>
#include <vector>

#include "motley/control/planning/prediction.h"

namespace motley::control {

/// What keeps a step from being shorter, or a device from having more of it.
struct Binding {
  /// "compute": of those that compute longest; "exchange": of what no compute hides; "waiting": for
  /// others; "bubble": idle otherwise; "memory": no room for one more sample.
  std::string what;
  std::vector<std::string> devices;  ///< where, in order of ranks
  std::string link;                  ///< exchange: the slowest one on its way; "": none limits
  double share = 0;                  ///< of the step; memory: of the limit
  std::string text;                  ///< for people
};

/// What binds a plan of which this was foreseen: parts of the step, the largest first, then
/// memories. Of each part those devices that have most of it, to kBindingMargin of the step; parts
/// below that are left out.
std::vector<Binding> find_binding(const Inputs& inputs, const plan::Plan& plan,
                                  const Predicted& predicted);
inline constexpr double kBindingMargin = 0.02;

/// May the device of this rank have no sample more (of each micro-batch) for lack of memory? What
/// one more needs is taken to be the mean of what its activations need.
bool is_full(const Inputs& inputs, const plan::Plan& plan, const Predicted& predicted,
             std::size_t rank);

/// "a:0, a:1, b:0 and 13 more".
std::string name_some(const std::vector<std::string>& names);

}  // namespace motley::control
