#pragma once

#include <cstddef>
#include <vector>

#include "motley/elastic/lifetimes.h"
#include "peers/import/transient.h"

namespace motley::bench {

/// Returns 0 for every second pair of kind and zone, ordered by name: the half for choosing forms;
/// 1 for the others: the half for judging.
std::size_t half_of(const elastic::RentedMachine& machine,
                    const std::vector<peers::DatedLife>& lives);

}  // namespace motley::bench
