#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "motley/base/json.h"
#include "motley/base/units.h"

namespace motley {

template <typename T>
Result<T> fields_from_json(const Json& json, const std::string& where);
template <typename Variant>
Result<Variant> kind_from_json(const Json& json, const std::string& where);

template <typename T>
concept Number = std::is_arithmetic_v<T>;

/// Reads the fields that `fields` of a struct declares (json_fields.h); keeps the first error.
class FieldReader {
 public:
  explicit FieldReader(JsonObject& object) : object_(object) {}
  FieldReader& operator()(const char* key, auto& into) {
    if (result_) result_ = read(key, into);
    return *this;
  }
  FieldReader& maybe(const char* key, auto& into) {
    return object_.has(key) ? (*this)(key, into) : *this;
  }
  FieldReader& when(bool, const char* key, auto& into) { return maybe(key, into); }
  FieldReader& word(const char* key, auto& into, const auto& names) {
    std::string text;
    (*this)(key, text);
    const auto found = std::find(names.begin(), names.end(), text);
    if (result_ && found == names.end())
      result_ = usage_error("json.type", object_.where() + ": unknown " + key + " '" + text + "'");
    if (result_) into = static_cast<std::remove_reference_t<decltype(into)>>(found - names.begin());
    return *this;
  }
  Result<void> result() const { return result_; }

 private:
  template <typename T>
  static Result<void> take(Result<T> found, auto& into) {
    MOTLEY_RETURN_IF_ERROR(found);
    into = static_cast<std::remove_reference_t<decltype(into)>>(std::move(*found));
    return {};
  }
  Result<void> read(const char* key, std::string& into) { return take(object_.string(key), into); }
  Result<void> read(const char* key, bool& into) { return take(object_.boolean(key), into); }
  Result<void> read(const char* key, double& into) { return take(object_.number(key), into); }
  Result<void> read(const char* key, std::signed_integral auto& into) {
    return take(object_.integer(key), into);
  }
  Result<void> read(const char* key, std::uint64_t& into) {
    MOTLEY_ASSIGN(const Json* member, object_.member(key));
    if (!member->is_number_integer() || (!member->is_number_unsigned() && *member < 0))
      return usage_error("json.type", object_.where() + ": key '" + key + "': found " +
                                          member->dump() + ", wanted an integer from 0 on");
    into = member->get<std::uint64_t>();  // a seed uses all 64 bits
    return {};
  }
  Result<void> read(const char* key, std::vector<std::string>& into) {
    return take(object_.strings(key), into);
  }
  template <typename Tag, typename Rep>
  Result<void> read(const char* key, Quantity<Tag, Rep>& into) {
    return read(key, into.value);
  }
  template <typename T>
  Result<void> read(const char* key, std::optional<T>& into) {
    MOTLEY_ASSIGN(const Json* member, object_.member(key));
    return member->is_null() ? Result<void>() : read(key, into.emplace());
  }
  template <Number T>
  Result<void> read(const char* key, std::vector<T>& into) {
    MOTLEY_ASSIGN(const Json* list, object_.member(key));
    const auto fits = [](const Json& each) {
      return std::integral<T> ? each.is_number_integer() : each.is_number();
    };
    if (!list->is_array() || !std::all_of(list->begin(), list->end(), fits))
      return wanted(key, std::integral<T> ? "integers" : "numbers");
    into = list->get<std::vector<T>>();
    return {};
  }
  template <Number T>
  Result<void> read(const char* key, std::set<T>& into) {
    std::vector<T> list;
    MOTLEY_RETURN_IF_ERROR(read(key, list));
    into = {list.begin(), list.end()};
    return {};
  }
  template <Number T>
  Result<void> read(const char* key, std::vector<std::vector<T>>& into) {
    MOTLEY_ASSIGN(const Json* rows, object_.member(key));
    if (!rows->is_array()) return wanted(key, "a list");
    into.clear();
    for (const Json& row : *rows) {
      const Json alone = {{key, row}};
      MOTLEY_ASSIGN(JsonObject object, JsonObject::make(alone, object_.where()));
      MOTLEY_RETURN_IF_ERROR(FieldReader(object).read(key, into.emplace_back()));
    }
    return {};
  }
  template <typename T>
  Result<void> read(const char* key, std::vector<T>& into) {
    MOTLEY_ASSIGN(const Json* list, object_.member(key));
    if (!list->is_array()) return wanted(key, "a list");
    into.clear();
    for (std::size_t i = 0; i < list->size(); ++i) {
      const std::string where = name_of(key) + "[" + std::to_string(i) + "]";
      MOTLEY_RETURN_IF_ERROR(take(fields_from_json<T>((*list)[i], where), into.emplace_back()));
    }
    return {};
  }
  template <typename T>
  Result<void> read(const char* key, std::map<std::string, T>& into) {
    MOTLEY_ASSIGN(const Json* member, object_.member(key));
    MOTLEY_ASSIGN(JsonObject object, JsonObject::make(*member, name_of(key)));
    FieldReader reader(object);
    for (const auto& [name, value] : member->items()) reader(name.c_str(), into[name]);
    return reader.result();
  }
  template <typename... Kinds>
  Result<void> read(const char* key, std::variant<Kinds...>& into) {
    MOTLEY_ASSIGN(const Json* member, object_.member(key));
    return take(kind_from_json<std::variant<Kinds...>>(*member, object_.where()), into);
  }
  template <typename T>
  Result<void> read(const char* key, T& into) {
    MOTLEY_ASSIGN(const Json* member, object_.member(key));
    if constexpr (requires { into.restore(*member, name_of(key)); })
      return into.restore(*member, name_of(key));
    else
      return take(fields_from_json<T>(*member, name_of(key)), into);
  }
  std::string name_of(const char* key) const { return object_.where() + ": " + key; }
  tl::unexpected<Error> wanted(const std::string& key, const std::string& what) const {
    return usage_error("json.type", object_.where() + ": key '" + key + "': wanted " + what);
  }

  JsonObject& object_;
  Result<void> result_;
};

}  // namespace motley
