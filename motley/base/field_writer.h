#pragma once

#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "motley/base/json.h"
#include "motley/base/units.h"

namespace motley {

template <typename T>
Json fields_to_json(const T& value);
template <typename... Kinds>
Json kind_to_json(const std::variant<Kinds...>& value);

/// Writes the fields that `fields` of a struct declares (json_fields.h).
class FieldWriter {
 public:
  explicit FieldWriter(Json& json) : json_(json) {}
  FieldWriter& operator()(const char* key, const auto& value) {
    json_[key] = to_json(value);
    return *this;
  }
  FieldWriter& maybe(const char* key, const auto& value) { return (*this)(key, value); }
  FieldWriter& when(bool is_written, const char* key, const auto& value) {
    return is_written ? (*this)(key, value) : *this;
  }
  FieldWriter& word(const char* key, auto value, const auto& names) {
    return (*this)(key, names[static_cast<std::size_t>(value)]);
  }

 private:
  static Json to_json(const auto& value) {
    if constexpr (requires { value.state(); })
      return value.state();
    else if constexpr (requires { Json(value); })
      return Json(value);
    else
      return fields_to_json(value);
  }
  template <typename Tag, typename Rep>
  static Json to_json(Quantity<Tag, Rep> value) {
    return value.value;
  }
  template <typename T>
  static Json to_json(const std::optional<T>& value) {
    return value ? to_json(*value) : Json(nullptr);
  }
  template <typename... Kinds>
  static Json to_json(const std::variant<Kinds...>& value) {
    return kind_to_json(value);
  }
  template <typename T>
  static Json to_json(const std::vector<T>& values) {
    Json list = Json::array();
    for (const T& value : values) list.push_back(to_json(value));
    return list;
  }
  template <typename T>
  static Json to_json(const std::map<std::string, T>& values) {
    Json object = Json::object();
    for (const auto& [name, value] : values) object[name] = to_json(value);
    return object;
  }

  Json& json_;
};

}  // namespace motley
