#pragma once

#include <cstddef>
#include <vector>

#include "motley/elastic/lifetimes.h"
#include "peers/import/transient.h"

namespace motley::bench {

/// Every second pair of kind and zone, in the order of their names, is of the half (0) that forms
/// were chosen on; the others (1) are what they are judged by.
std::size_t half_of(const elastic::RentedMachine& machine,
                    const std::vector<peers::DatedLife>& lives);

}  // namespace motley::bench
