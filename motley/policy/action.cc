#include "motley/policy/action.h"

#include "motley/base/json_fields.h"

namespace motley::policy {

Json action_to_json(const Action& action) { return kind_to_json(action); }
Result<Action> action_from_json(const Json& json, const std::string& where) {
  return kind_from_json<Action>(json, where);
}

}  // namespace motley::policy
