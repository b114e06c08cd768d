#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "motley/base/json_forward.h"
#include "motley/base/result.h"

namespace motley {

/// Parses JSON text. Returns errors as "NAME:LINE:COLUMN: ..." (usage, code json.parse) and throws
/// nothing. Refuses nesting beyond 64 levels and an object with the same key twice.
Result<Json> parse_json(std::string_view text, const std::string& name);

/// For objects of very many members: look-up in logarithmic time, key order lost.
using SortedJson = nlohmann::json;
Result<SortedJson> parse_sorted_json(std::string_view text, const std::string& name);

/// Reads members of one JSON object with clear errors ("NAME: key 'samples': found a string, wanted
/// an integer"). Records the keys read, so that unknown ones can be refused.
class JsonObject {
 public:
  /// `json` must outlive the reader. Error if it is not an object.
  static Result<JsonObject> make(const Json& json, std::string where);

  Result<std::string> string(const std::string& key);
  Result<std::int64_t> integer(const std::string& key);
  Result<double> number(const std::string& key);
  Result<bool> boolean(const std::string& key);
  Result<std::vector<std::string>> strings(const std::string& key);
  /// Returns a member of any type; error if absent.
  Result<const Json*> member(const std::string& key);
  bool has(const std::string& key) const;
  /// Returns an error that names the first key never read, with the nearest known one.
  Result<void> refuse_unknown() const;
  const std::string& where() const { return where_; }

 private:
  JsonObject(const Json& json, std::string where) : json_(&json), where_(std::move(where)) {}
  const Json* json_;
  std::string where_;
  std::vector<std::string> read_;
};

}  // namespace motley
