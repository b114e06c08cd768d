#pragma once

#include <string>
#include <vector>

#include "motley/control/planning/prediction.h"

namespace motley::control {

/// A limit on a step's time or on a device's share.
struct Binding {
  /// "compute": the devices that compute longest; "exchange": communication that compute does not
  /// hide; "waiting": for others; "bubble": otherwise idle; "memory": no room for another sample.
  std::string what;
  std::vector<std::string> devices;  ///< in rank order
  std::string link;                  ///< exchange: the slowest on its route; "": none limits
  double share = 0;                  ///< of the step; memory: of the limit
  std::string text;
};

/// Returns the parts of the step, largest first, then memories. A part names the devices within
/// kBindingMargin of its largest share; parts below kBindingMargin of the step are omitted.
std::vector<Binding> find_binding(const Inputs& inputs, const plan::Plan& plan,
                                  const Predicted& predicted);
inline constexpr double kBindingMargin = 0.02;

/// Is there no memory for one more sample (in each micro-batch), at the current mean per sample?
bool is_full(const Inputs& inputs, const plan::Plan& plan, const Predicted& predicted,
             std::size_t rank);

/// "a:0, a:1, b:0 and 13 more".
std::string name_some(const std::vector<std::string>& names);

}  // namespace motley::control
