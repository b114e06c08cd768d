#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "motley/base/json.h"
#include "motley/base/units.h"

namespace motley::policy {

// How this folder's text forms read what JsonObject alone does not.

inline Result<Seconds> read_seconds(JsonObject& object, const std::string& key) {
  MOTLEY_ASSIGN(const double value, object.number(key));
  return Seconds(value);
}

inline Result<std::vector<double>> read_numbers(JsonObject& object, const std::string& key) {
  MOTLEY_ASSIGN(const Json* list, object.member(key));
  const bool fits = list->is_array() && std::all_of(list->begin(), list->end(),
                                                    [](const Json& x) { return x.is_number(); });
  if (!fits)
    return usage_error("json.type", object.where() + ": key '" + key + "': wanted numbers");
  return list->get<std::vector<double>>();
}

/// A list of lists of numbers.
inline Result<std::vector<std::vector<double>>> read_rows(JsonObject& object,
                                                          const std::string& key) {
  MOTLEY_ASSIGN(const Json* list, object.member(key));
  std::vector<std::vector<double>> rows;
  for (const Json& row : *list) {
    const Json wrapped = {{key, row}};
    MOTLEY_ASSIGN(JsonObject each, JsonObject::make(wrapped, object.where()));
    MOTLEY_ASSIGN(std::vector<double> numbers, read_numbers(each, key));
    rows.push_back(std::move(numbers));
  }
  return rows;
}

/// A policy's state, of which the rest is to be read: of the form that `schema` names.
inline Result<JsonObject> open_state(const Json& state, const std::string& schema,
                                     const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(state, where));
  MOTLEY_ASSIGN(const std::string found, object.string("schema"));
  if (found != schema)
    return usage_error("policy.state", where + ": found '" + found + "', wanted '" + schema + "'");
  return object;
}

/// The same of a state that names its policy and version.
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

/// A list of objects, each of which `read` reads to its last key.
template <typename T>
Result<std::vector<T>> read_list(JsonObject& object, const std::string& key,
                                 Result<T> (*read)(JsonObject&)) {
  MOTLEY_ASSIGN(const Json* list, object.member(key));
  if (!list->is_array())
    return usage_error("json.type", object.where() + ": key '" + key + "': wanted a list");
  std::vector<T> items;
  for (const Json& json : *list) {
    MOTLEY_ASSIGN(JsonObject each, JsonObject::make(json, object.where() + ": " + key));
    MOTLEY_ASSIGN(T item, read(each));
    MOTLEY_RETURN_IF_ERROR(each.refuse_unknown());
    items.push_back(std::move(item));
  }
  return items;
}

/// One alternative of a variant: the name that tells it, and how the rest is read.
template <typename Variant>
struct Kind {
  std::string_view name;
  Result<Variant> (*read)(JsonObject&);
};

template <typename Variant, std::size_t n>
Result<Variant> read_kind(const Json& json, const std::string& where, const std::string& key,
                          const Kind<Variant> (&kinds)[n]) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, where));
  MOTLEY_ASSIGN(const std::string name, object.string(key));
  std::string known;
  for (const Kind<Variant>& kind : kinds) {
    if (kind.name == name) {
      MOTLEY_ASSIGN(Variant read, kind.read(object));
      MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
      return read;
    }
    known += (known.empty() ? "" : ", ") + std::string(kind.name);
  }
  return usage_error("policy.kind",
                     where + ": key '" + key + "': found '" + name + "', wanted one of " + known);
}

}  // namespace motley::policy
