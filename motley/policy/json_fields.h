#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "motley/base/json.h"

namespace motley::policy {

/// Opens a policy's state of the form `schema`; the caller reads the rest.
inline Result<JsonObject> open_state(const Json& state, const std::string& schema,
                                     const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(state, where));
  MOTLEY_ASSIGN(const std::string found, object.string("schema"));
  if (found != schema)
    return usage_error("policy.state", where + ": found '" + found + "', wanted '" + schema + "'");
  return object;
}

/// Opens a state that names its policy and version.
inline Result<JsonObject> open_state_of(const Json& state, std::string_view policy, int version,
                                        const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(state, where));
  MOTLEY_ASSIGN(const std::string found, object.string("policy"));
  MOTLEY_ASSIGN(const std::int64_t found_version, object.integer("version"));
  if (found == policy && found_version == version) return object;
  return usage_error("policy.state", where + ": found the state of '" + found + "', version " +
                                         std::to_string(found_version) + ", wanted '" +
                                         std::string(policy) + "', version " +
                                         std::to_string(version));
}

}  // namespace motley::policy
