#include "motley/base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

namespace motley {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

// Decimal and binary units are kept apart, as vendors and drivers do: 16 GB is 14.9 GiB, enough to
// make a plan not fit. "KB" is what people write for kB; it is never 1024 here.
constexpr std::array<Unit, 10> kByteUnits = {{{"B", 1},
                                              {"kB", 1e3},
                                              {"KB", 1e3},
                                              {"MB", 1e6},
                                              {"GB", 1e9},
                                              {"TB", 1e12},
                                              {"KiB", 0x1p10},
                                              {"MiB", 0x1p20},
                                              {"GiB", 0x1p30},
                                              {"TiB", 0x1p40}}};
constexpr std::array<Unit, 6> kSecondUnits = {
    {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"min", 60}, {"h", 3600}}};
constexpr std::array<Unit, 5> kBitRateUnits = {{{"bps", 1.0 / 8},
                                                {"kbps", 1e3 / 8},
                                                {"Mbps", 1e6 / 8},
                                                {"Gbps", 1e9 / 8},
                                                {"Tbps", 1e12 / 8}}};

std::optional<double> find_factor(std::span<const Unit> units, std::string_view name) {
  for (const Unit& unit : units) {
    if (unit.name == name) return unit.factor;
  }
  return std::nullopt;
}

/// Splits "24 GiB" into 24 and "GiB"; empty if it does not start with a non-negative number.
struct NumberAndUnit {
  double number;
  std::string_view unit;
};
std::optional<NumberAndUnit> split_unit(std::string_view text) {
  text = trim(text);
  // An exponent is part of the number only when digits follow: "1e3B", but "1GB".
  std::size_t end = text.find_first_not_of("0123456789.");
  if (end == std::string_view::npos) end = text.size();
  if (end + 1 < text.size() && (text[end] == 'e' || text[end] == 'E')) {
    const std::size_t sign = (text[end + 1] == '-' || text[end + 1] == '+') ? 1 : 0;
    const std::size_t after =
        std::min(text.find_first_not_of("0123456789", end + 1 + sign), text.size());
    if (after > end + 1 + sign) end = after;
  }
  const auto number = find_float(text.substr(0, end));
  if (!number) return std::nullopt;
  return NumberAndUnit{*number, trim(text.substr(end))};
}

/// Prints three significant digits without an exponent or trailing zeros: 17.9, 512, 3.5.
std::string three_digits(double value) {
  // Thresholds lie where rounding adds a fourth digit: 9.995 prints as 10.0, not 9.99 or 10.00.
  const double size = std::abs(value);
  std::string text = fmt::format("{:.{}f}", value, size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2);
  if (text.find('.') != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return text;
}

/// Divides by `base` while the number would print as more than `most`.
std::string scaled(double value, double base, double most,
                   std::span<const std::string_view> units) {
  std::size_t unit = 0;
  while (std::abs(value) >= most && unit + 1 < units.size()) {
    value /= base;
    ++unit;
  }
  return fmt::format("{} {}", three_digits(value), units[unit]);
}

/// Returns Levenshtein's distance with one row of the table at a time. O(|a| |b|).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string print_float(double value) {
  if (std::isnan(value)) return "nan";
  std::string text = fmt::format("{}", value);
  // "2" would read back as an integer, and artifacts distinguish the two. 'n' matches "inf".
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

std::optional<std::int64_t> find_integer(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> find_float(std::string_view text) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (text == "inf") return kInfinity;
  if (text == "-inf") return -kInfinity;
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  // from_chars also accepts "infinity" and "nan(...)", which would give equal values unequal texts.
  if (text.find_first_not_of("0123456789.+-eE") != std::string_view::npos) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string quote(std::string_view text) {
  std::string quoted;
  quoted.reserve(text.size() + 2);
  quoted += '"';
  for (const char c : text) {
    if (c == '\n') {
      quoted += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  quoted += '"';
  return quoted;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t at = text.find(separator); at != std::string_view::npos;
       at = text.find(separator)) {
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at + 1);
  }
  parts.push_back(text);
  return parts;
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

std::string join(std::span<const std::string> parts, std::string_view separator) {
  return fmt::format("{}", fmt::join(parts.begin(), parts.end(), separator));
}

bool is_utf8(std::string_view text) {
  // Continuation bytes and the smallest code point of each sequence length rule out overlong forms.
  constexpr std::array<std::uint32_t, 5> kLeast = {0, 0, 0x80, 0x800, 0x10000};
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    const std::size_t length = lead >= 0xF8   ? 0
                               : lead >= 0xF0 ? 4
                               : lead >= 0xE0 ? 3
                               : lead >= 0xC0 ? 2
                                              : 0;
    if (length == 0 || i + length > text.size()) return false;
    std::uint32_t point = lead & (0xFFu >> (length + 1));
    for (std::size_t j = 1; j < length; ++j) {
      const auto next = static_cast<unsigned char>(text[i + j]);
      if ((next & 0xC0) != 0x80) return false;
      point = point << 6 | (next & 0x3F);
    }
    const bool surrogate = point >= 0xD800 && point <= 0xDFFF;
    if (point < kLeast[length] || point > 0x10FFFF || surrogate) return false;
    i += length;
  }
  return true;
}

std::optional<std::string> find_suggestion(std::string_view word,
                                           std::span<const std::string> candidates) {
  // The distance is quadratic, and words may come from a malicious file.
  constexpr std::size_t kLongest = 100;
  if (word.size() > kLongest) return std::nullopt;
  const std::string* best = nullptr;
  // At most one wrong letter in three: a farther suggestion confuses more than it helps.
  std::size_t best_distance = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > kLongest) continue;
    const std::size_t distance = edit_distance(word, candidate);
    if (distance >= best_distance || distance >= candidate.size()) continue;
    best = &candidate;
    best_distance = distance;
  }
  if (best == nullptr) return std::nullopt;
  return *best;
}

std::string suggestion_clause(std::string_view word, std::span<const std::string> candidates) {
  const auto suggestion = find_suggestion(word, candidates);
  return suggestion ? fmt::format(", did you mean '{}'?", *suggestion) : "";
}

std::string format_bytes(Bytes bytes) {
  constexpr std::array<std::string_view, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  // 1023.5 would print as 1024, which is one of the next unit.
  return scaled(static_cast<double>(bytes.value), 1024, 1023.5, kUnits);
}

std::string format_seconds(Seconds seconds) {
  constexpr std::array<std::string_view, 4> kUnits = {"ns", "us", "ms", "s"};
  if (seconds.value == 0) return "0 s";
  return scaled(seconds.value * 1e9, 1000, 999.5, kUnits);
}

std::string format_rate(BytesPerSecond rate) {
  constexpr std::array<std::string_view, 5> kUnits = {"bps", "kbps", "Mbps", "Gbps", "Tbps"};
  return scaled(rate.value * 8, 1000, 999.5, kUnits);
}

Result<Bytes> parse_bytes(std::string_view text) {
  const auto parts = split_unit(text);
  const auto factor = !parts                ? std::nullopt
                      : parts->unit.empty() ? std::optional(1.0)
                                            : find_factor(kByteUnits, parts->unit);
  // Far below 2^63, so that sums of a few sizes cannot overflow.
  if (!factor || parts->number * *factor > 0x1p62) {
    return usage_error("text.bytes", fmt::format("found '{}', wanted a size such as 512MiB, 24GiB, "
                                                 "1.2GB",
                                                 text));
  }
  return Bytes(std::llround(parts->number * *factor));
}

Result<Seconds> parse_seconds(std::string_view text) {
  const auto parts = split_unit(text);
  const auto factor = !parts                ? std::nullopt
                      : parts->unit.empty() ? std::optional(1.0)
                                            : find_factor(kSecondUnits, parts->unit);
  if (!factor || !std::isfinite(parts->number * *factor)) {
    return usage_error("text.seconds",
                       fmt::format("found '{}', wanted a time such as 120s, 3ms, 100us", text));
  }
  return Seconds(parts->number * *factor);
}

Result<BytesPerSecond> parse_rate(std::string_view text) {
  const auto parts = split_unit(text);
  std::optional<double> factor;
  if (parts && parts->unit.empty()) factor = 1.0;
  if (parts && parts->unit.ends_with("bps")) factor = find_factor(kBitRateUnits, parts->unit);
  if (parts && parts->unit.ends_with("/s")) {
    factor = find_factor(kByteUnits, parts->unit.substr(0, parts->unit.size() - 2));
  }
  if (!factor || !std::isfinite(parts->number * *factor)) {
    return usage_error("text.rate",
                       fmt::format("found '{}', wanted a rate such as 10Gbps, 100Mbps, "
                                   "40GB/s",
                                   text));
  }
  return BytesPerSecond(parts->number * *factor);
}

namespace {

/// Returns whether one name follows another, as "b:7" follows "b:6".
bool comes_after(const std::string& name, const std::string& before) {
  const std::size_t digits = before.find_last_not_of("0123456789") + 1;
  const auto number = find_integer(std::string_view(before).substr(digits));
  return number && name == before.substr(0, digits) + std::to_string(*number + 1);
}

}  // namespace

std::string print_rows(const std::vector<std::pair<std::string, std::string>>& rows) {
  constexpr std::size_t kLeastShared = 4;
  std::string text;
  for (std::size_t first = 0, end = 0; first < rows.size(); first = end) {
    for (++end; end < rows.size() && rows[end].second == rows[first].second &&
                comes_after(rows[end].first, rows[end - 1].first);)
      ++end;
    if (end - first >= kLeastShared) {
      text += fmt::format("  {:<10} {}\n", rows[first].first + " to " + rows[end - 1].first,
                          rows[first].second);
      continue;
    }
    for (std::size_t r = first; r < end; ++r)
      text += fmt::format("  {:<10} {}\n", rows[r].first, rows[r].second);
  }
  return text;
}

}  // namespace motley
