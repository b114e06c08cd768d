#pragma once

namespace motley::control {

/// The request of a run's listener.
enum class Wish {
  kGoOn,
  kStop,  ///< end as on SIGTERM: finish the current step and write a checkpoint
};

}  // namespace motley::control
