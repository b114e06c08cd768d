#pragma once

#include <vector>

#include "motley/cli/context/context.h"
#include "motley/cli/demo/demo_training.h"

namespace motley::cli {

/// Trains at least one model on three emulated devices, each by an equal split and by the plan.
/// Prints the result of each check as text or JSON (docs/interfaces.md), and in the text how to
/// continue. Writes to the setting's folder, which is created if necessary. Returns kCheckFailed
/// only for real errors: times that a busy machine makes unreliable are named, but fail nothing.
Result<int> demonstrate(const std::vector<DemoModel>& models, const DemoSetting& setting,
                        const Context& context);

}  // namespace motley::cli
