#include "motley/policy/decision.h"

#include "motley/base/json_fields.h"

namespace motley::policy {

std::string print_decision(const Decision& decision) { return fields_to_json(decision).dump(); }

Result<Decision> parse_decision(std::string_view line, const std::string& where) {
  MOTLEY_ASSIGN(const Json json, parse_json(line, where));
  return fields_from_json<Decision>(json, where);
}

}  // namespace motley::policy
