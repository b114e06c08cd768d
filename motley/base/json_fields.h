#pragma once

#include <string>
#include <utility>
#include <variant>

#include "motley/base/field_reader.h"
#include "motley/base/field_writer.h"

namespace motley {

// Structs as JSON objects: one declaration of the fields serves reading and writing.
//
//   struct Best {
//     double value = 0;
//     std::optional<Seconds> took;  ///< null: none
//     static void fields(auto& it, auto& field) { field("value", it.value)("took_s", it.took); }
//   };
//
// A struct whose values need checks also has `Result<void> check(const std::string& where) const`.
// `field.maybe(...)` reads an optional key. `field.when(is_written, ...)` also writes it only if
// `is_written`. `field.word(...)` handles an enumeration.

template <typename T>
Json fields_to_json(const T& value);
/// Usage errors give the key, what was found and what is wanted. Refuses unknown keys.
template <typename T>
Result<T> fields_from_json(const Json& json, const std::string& where);
/// Reads the fields from an object that has other keys too.
template <typename T>
Result<T> fields_of(JsonObject& object);
/// Sets the fields of a value that also has other members.
template <typename T>
Result<void> restore_fields(const Json& json, const std::string& where, T& value);

/// Writes an alternative with its `kKind`: the key that identifies the alternative, and its name.
template <typename... Kinds>
Json kind_to_json(const std::variant<Kinds...>& value);
/// Error code `policy.kind`: the name is none of the alternatives.
template <typename Variant>
Result<Variant> kind_from_json(const Json& json, const std::string& where);

template <typename T>
Json fields_to_json(const T& value) {
  Json json = Json::object();
  FieldWriter writer(json);
  T::fields(value, writer);
  return json;
}

template <typename T>
Result<void> read_fields(JsonObject& object, T& value) {
  FieldReader reader(object);
  T::fields(value, reader);
  MOTLEY_RETURN_IF_ERROR(reader.result());
  if constexpr (requires { value.check(object.where()); })
    return value.check(object.where());
  else
    return {};
}

template <typename T>
Result<T> fields_of(JsonObject& object) {
  T value;
  MOTLEY_RETURN_IF_ERROR(read_fields(object, value));
  return value;
}

template <typename T>
Result<void> restore_fields(const Json& json, const std::string& where, T& value) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, where));
  MOTLEY_RETURN_IF_ERROR(read_fields(object, value));
  return object.refuse_unknown();
}

template <typename T>
Result<T> fields_from_json(const Json& json, const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, where));
  MOTLEY_ASSIGN(T value, fields_of<T>(object));
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  return value;
}

template <typename... Kinds>
Json kind_to_json(const std::variant<Kinds...>& value) {
  return std::visit(
      []<typename T>(const T& kind) {
        Json json{{T::kKind[0], T::kKind[1]}};
        json.update(fields_to_json(kind));
        return json;
      },
      value);
}

template <typename Variant, std::size_t... I>
Result<Variant> read_kind(JsonObject& object, std::index_sequence<I...>) {
  const std::string key = std::variant_alternative_t<0, Variant>::kKind[0];
  MOTLEY_ASSIGN(const std::string name, object.string(key));
  std::string known;
  Result<Variant> found = usage_error("policy.kind", "");
  const auto consider = [&]<typename T>(T*) {
    if (name != T::kKind[1])
      return known += (known.empty() ? "" : ", ") + std::string(T::kKind[1]), false;
    found = fields_of<T>(object);
    return true;
  };
  if ((consider(static_cast<std::variant_alternative_t<I, Variant>*>(nullptr)) || ...))
    return found;
  return usage_error("policy.kind", object.where() + ": key '" + key + "': found '" + name +
                                        "', wanted one of " + known);
}

template <typename Variant>
Result<Variant> kind_from_json(const Json& json, const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, where));
  MOTLEY_ASSIGN(
      Variant value,
      read_kind<Variant>(object, std::make_index_sequence<std::variant_size_v<Variant>>()));
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  return value;
}

}  // namespace motley
