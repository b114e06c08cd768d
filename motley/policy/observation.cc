#include "motley/policy/observation.h"

#include "motley/base/json_fields.h"

namespace motley::policy {

Json observation_to_json(const Observation& observation) { return kind_to_json(observation); }
Result<Observation> observation_from_json(const Json& json, const std::string& where) {
  return kind_from_json<Observation>(json, where);
}

}  // namespace motley::policy
