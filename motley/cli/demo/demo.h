#pragma once

#include <vector>

#include "motley/cli/context/context.h"
#include "motley/cli/demo/demo_training.h"

namespace motley::cli {

/// Trains the models on three emulated devices, each by an equal split and by the plan, says what
/// came of each check, as text or JSON (docs/interfaces.md), and in the text how to go on. All is
/// written to the setting's folder, which is made if need be. kCheckFailed only for what is wrong:
/// times of which a busy machine lets nothing be said fail nothing, and are named. At least one
/// model.
Result<int> demonstrate(const std::vector<DemoModel>& models, const DemoSetting& setting,
                        const Context& context);

}  // namespace motley::cli
