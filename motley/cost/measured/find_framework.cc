#include "motley/cost/measured/find_framework.h"

namespace motley::cost {

Result<std::optional<cluster::Framework>> find_framework(const ProfileStore& store,
                                                         const DeviceKey& key) {
  MOTLEY_ASSIGN(const auto context, store.find_op(key, cluster::kContextKey));
  if (!context) return std::nullopt;
  cluster::Framework found{context->scratch, std::nullopt};
  MOTLEY_ASSIGN(const auto reserve, store.find_op(key, cluster::kReserveKey));
  if (reserve) found.reserve = static_cast<double>(reserve->scratch.value) / cluster::kReserveUnit;
  return found;
}

}  // namespace motley::cost
