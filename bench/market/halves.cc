#include "bench/market/halves.h"

#include <iterator>
#include <set>
#include <string>

namespace motley::bench {

std::size_t half_of(const elastic::RentedMachine& machine,
                    const std::vector<peers::DatedLife>& lives) {
  std::set<std::string> names;
  for (const auto& life : lives) names.insert(life.machine.kind + life.machine.zone);
  const auto found = names.find(machine.kind + machine.zone);
  return static_cast<std::size_t>(std::distance(names.begin(), found)) % 2;
}

}  // namespace motley::bench
