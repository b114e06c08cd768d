#pragma once

#include <cstddef>
#include <vector>

#include "motley/elastic/lifetimes.h"
#include "peers/import/transient.h"

namespace motley::bench {

/// Returns 0 (the half for choosing forms) or 1 (for judging), alternating over pairs by name.
std::size_t half_of(const elastic::RentedMachine& machine,
                    const std::vector<peers::DatedLife>& lives);

}  // namespace motley::bench
