#pragma once

// The parser asserts that a key starts well, although input decides that ("[."), and reports it
// itself. With NDEBUG the optimizer would assume the assertion. We want neither.
#undef NDEBUG
#define TOML_ASSERT(expression) static_assert(true)
#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#include <fmt/format.h>
#include <toml++/toml.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "motley/base/result.h"

namespace motley::cluster {

/// "a table", "an array", ...
std::string_view toml_type(const toml::node& node);

/// Reads the members of one TOML table. Every error names file and line.
class TableReader {
 public:
  /// The file's path and the prefix of its error codes ("cluster").
  struct Source {
    std::string file, code;
  };
  /// `what` names the table for people: "[[node]]".
  TableReader(const toml::table& table, Source source, std::string what)
      : table_(&table), source_(std::move(source)), what_(std::move(what)) {}

  int line() const { return static_cast<int>(table_->source().begin.line); }

  tl::unexpected<Error> fault(int line, const std::string& code, const std::string& message) const {
    return usage_error(source_.code + "." + code,
                       fmt::format("{}:{}: {}", source_.file, line, message));
  }

  /// Refuses the first key of the file that is not among `known`.
  Result<void> refuse_unknown(std::span<const std::string> known) const;

  const toml::node* find(std::string_view key) const { return table_->get(key); }

  Result<std::optional<std::string>> text(std::string_view key) const {
    return scalar<std::string>(key, "a string");
  }
  Result<std::optional<bool>> flag(std::string_view key) const {
    return scalar<bool>(key, "true or false");
  }
  Result<std::optional<std::int64_t>> integer(std::string_view key) const {
    return scalar<std::int64_t>(key, "an integer");
  }

  /// Reads an integer that fits `int`.
  Result<int> small(std::string_view key, int fallback) const;

  Result<std::optional<double>> number(std::string_view key) const {
    const toml::node* node = find(key);
    if (node == nullptr) return std::nullopt;
    const std::optional<double> value = plain_number(*node);
    if (!value) return wrong_type(key, "a number");
    return value;
  }

  /// Reads a text with a unit, or a plain number in the base unit.
  template <typename Quantity>
  Result<std::optional<Quantity>> quantity(std::string_view key,
                                           Result<Quantity> (*parse)(std::string_view)) const {
    using Rep = decltype(Quantity::value);
    const toml::node* node = find(key);
    if (node == nullptr) return std::nullopt;
    if (const auto* text = node->as_string()) {
      Result<Quantity> value = parse(text->get());
      if (!value) return fault_at(key, value.error().message);
      return *value;
    }
    if constexpr (std::is_same_v<Rep, std::int64_t>) {
      if (const auto* value = node->as_integer()) return Quantity(value->get());
      return wrong_type(key, "a text with a unit or an integer");
    } else {
      if (const auto value = plain_number(*node)) return Quantity(*value);
      return wrong_type(key, "a text with a unit or a number");
    }
  }

  /// Returns the tables of `[[key]]`; none when the key is absent.
  Result<std::vector<TableReader>> tables(std::string_view key, const std::string& what) const;

  Result<std::string> required_text(std::string_view key) const {
    MOTLEY_ASSIGN(auto value, text(key));
    if (!value) return missing(key);
    return std::move(*value);
  }

  tl::unexpected<Error> missing(std::string_view key) const {
    return fault(line(), "missing-key", fmt::format("{} has no key '{}'", what_, key));
  }
  tl::unexpected<Error> fault_at(std::string_view key, const std::string& message) const {
    return fault(static_cast<int>(find(key)->source().begin.line), "value",
                 fmt::format("key '{}': {}", key, message));
  }
  tl::unexpected<Error> wrong_type(std::string_view key, std::string_view wanted) const {
    return fault_at(key, fmt::format("found {}, wanted {}", toml_type(*find(key)), wanted));
  }

 private:
  template <typename T>
  Result<std::optional<T>> scalar(std::string_view key, std::string_view wanted) const {
    const toml::node* node = find(key);
    if (node == nullptr) return std::nullopt;
    const auto* value = node->as<T>();
    if (value == nullptr) return wrong_type(key, wanted);
    return value->get();
  }

  static std::optional<double> plain_number(const toml::node& node) {
    if (const auto* value = node.as_floating_point()) return value->get();
    if (const auto* value = node.as_integer()) return static_cast<double>(value->get());
    return std::nullopt;
  }

  const toml::table* table_;
  Source source_;
  std::string what_;
};

/// Parses a whole document, ASCII except for comments, of bounded size. Returns its top table.
Result<toml::table> parse_toml(std::string_view text, const TableReader::Source& source);

}  // namespace motley::cluster
