#pragma once

namespace motley::control {

/// What somebody who watches a run asks for.
enum class Wish {
  kGoOn,
  kStop,  ///< end as on SIGTERM: with a checkpoint after the step that is under way
};

}  // namespace motley::control
