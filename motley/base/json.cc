#include "motley/base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "motley/base/text.h"

namespace motley {
namespace {

constexpr int kMaxDepth = 64;

/// Returns "LINE:COLUMN" of a byte.
std::string place(std::string_view text, std::size_t byte) {
  const std::string_view before = text.substr(0, std::min(byte, text.size()));
  const std::size_t newline = before.rfind('\n');
  const std::size_t column =
      newline == std::string_view::npos ? before.size() : before.size() - newline - 1;
  return fmt::format("{}:{}", std::count(before.begin(), before.end(), '\n') + 1, column + 1);
}

/// Returns the position of the bracket that nests too deeply; npos if none does. Printing and
/// copying a document recurse, so depth must be bounded before parsing.
std::size_t find_too_deep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth) return i;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return std::string_view::npos;
}

/// Returns the library's message after its prefix and place: the text after "column N: ".
std::string reason(std::string_view what) {
  const std::size_t column = what.find("column ");
  const std::size_t colon = what.find(": ", column == std::string_view::npos ? 0 : column);
  if (column != std::string_view::npos && colon != std::string_view::npos) {
    return std::string(what.substr(colon + 2));
  }
  const std::size_t bracket = what.find("] ");
  return std::string(bracket == std::string_view::npos ? what : what.substr(bracket + 2));
}

tl::unexpected<Error> parse_failed(const std::string& where, const std::string& message) {
  return usage_error("json.parse", where + ": " + message);
}

template <typename Document>
Result<Document> parse(std::string_view text, const std::string& name) {
  if (const std::size_t deep = find_too_deep(text); deep != std::string_view::npos) {
    return parse_failed(name + ":" + place(text, deep),
                        fmt::format("nested too deeply, at most {} levels", kMaxDepth));
  }
  std::vector<std::set<std::string>> keys;  // of the open objects, by depth
  std::string twice;
  const auto note = [&](int depth, nlohmann::json::parse_event_t event, const Document& value) {
    const auto level = static_cast<std::size_t>(depth);
    if (event == nlohmann::json::parse_event_t::object_start) {
      if (keys.size() < level + 2) keys.resize(level + 2);
      keys[level + 1].clear();
    } else if (event == nlohmann::json::parse_event_t::key && twice.empty()) {
      const auto& key = value.template get_ref<const std::string&>();
      if (!keys[level].insert(key).second) twice = key;
    }
    return true;
  };
  try {
    Document document = Document::parse(text, note);
    if (!twice.empty()) return parse_failed(name, fmt::format("key '{}' appears twice", twice));
    return document;
  } catch (const nlohmann::json::parse_error& error) {
    const std::size_t byte = error.byte == 0 ? 0 : error.byte - 1;
    return parse_failed(name + ":" + place(text, byte), reason(error.what()));
  } catch (const nlohmann::json::exception& error) {
    return parse_failed(name, reason(error.what()));
  }
}

std::string type_name(const Json& json) {
  switch (json.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "a list";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::boolean:
      return "a boolean";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return "an integer";
    case Json::value_t::number_float:
      return "a number";
    default:
      return "nothing";
  }
}

tl::unexpected<Error> wrong_type(const std::string& where, const std::string& key,
                                 const Json& found, std::string_view wanted) {
  return usage_error("json.type", fmt::format("{}: key '{}': found {}, wanted {}", where, key,
                                              type_name(found), wanted));
}

}  // namespace

Result<Json> parse_json(std::string_view text, const std::string& name) {
  return parse<Json>(text, name);
}

Result<SortedJson> parse_sorted_json(std::string_view text, const std::string& name) {
  return parse<SortedJson>(text, name);
}

Result<JsonObject> JsonObject::make(const Json& json, std::string where) {
  if (!json.is_object()) {
    return usage_error("json.type",
                       fmt::format("{}: found {}, wanted an object", where, type_name(json)));
  }
  return JsonObject(json, std::move(where));
}

Result<const Json*> JsonObject::member(const std::string& key) {
  read_.push_back(key);
  const auto found = json_->find(key);
  if (found == json_->end()) {
    return usage_error("json.missing-key", fmt::format("{}: key '{}' is missing", where_, key));
  }
  return &*found;
}

Result<std::string> JsonObject::string(const std::string& key) {
  MOTLEY_ASSIGN(const Json* value, member(key));
  if (!value->is_string()) return wrong_type(where_, key, *value, "a string");
  return value->get<std::string>();
}

Result<std::int64_t> JsonObject::integer(const std::string& key) {
  MOTLEY_ASSIGN(const Json* value, member(key));
  if (!value->is_number_integer()) return wrong_type(where_, key, *value, "an integer");
  if (value->is_number_unsigned() && value->get<std::uint64_t>() > INT64_MAX) {
    return usage_error("json.type",
                       fmt::format("{}: key '{}': found {}, wanted an integer below 2^63", where_,
                                   key, value->get<std::uint64_t>()));
  }
  return value->get<std::int64_t>();
}

Result<double> JsonObject::number(const std::string& key) {
  MOTLEY_ASSIGN(const Json* value, member(key));
  if (!value->is_number()) return wrong_type(where_, key, *value, "a number");
  return value->get<double>();
}

Result<bool> JsonObject::boolean(const std::string& key) {
  MOTLEY_ASSIGN(const Json* value, member(key));
  if (!value->is_boolean()) return wrong_type(where_, key, *value, "a boolean");
  return value->get<bool>();
}

Result<std::vector<std::string>> JsonObject::strings(const std::string& key) {
  MOTLEY_ASSIGN(const Json* list, member(key));
  if (!list->is_array()) return wrong_type(where_, key, *list, "a list of strings");
  std::vector<std::string> strings;
  for (const Json& item : *list) {
    if (!item.is_string()) return wrong_type(where_, key, item, "only strings in the list");
    strings.push_back(item.get<std::string>());
  }
  return strings;
}

bool JsonObject::has(const std::string& key) const { return json_->contains(key); }

Result<void> JsonObject::refuse_unknown() const {
  for (const auto& [key, value] : json_->items()) {
    if (std::find(read_.begin(), read_.end(), key) != read_.end()) continue;
    return usage_error("json.unknown-key", fmt::format("{}: unknown key '{}'{}", where_, key,
                                                       suggestion_clause(key, read_)));
  }
  return {};
}

}  // namespace motley
