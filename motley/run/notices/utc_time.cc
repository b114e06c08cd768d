#include "motley/run/notices/utc_time.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <span>

#include "motley/base/text.h"

namespace motley::run {
namespace {

constexpr std::array<std::string_view, 12> kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                      "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};

/// Removes exactly `digits` digits from the text's front. Returns their number; -1: there are none.
int take_digits(std::string_view& text, std::size_t digits) {
  const std::string_view number = text.substr(0, digits);
  if (number.size() < digits || number.find_first_not_of("0123456789") != std::string_view::npos)
    return -1;
  text.remove_prefix(digits);
  return static_cast<int>(find_integer(number).value_or(-1));
}

bool take_mark(std::string_view& text, std::string_view mark) {
  if (!text.starts_with(mark)) return false;
  text.remove_prefix(mark.size());
  return true;
}

std::optional<Seconds> time_of(std::chrono::year_month_day day, std::span<const int, 3> clock,
                               double fraction) {
  // 60 is a leap second.
  if (!day.ok() || clock[0] > 23 || clock[1] > 59 || clock[2] > 60) return std::nullopt;
  const std::int64_t days = std::chrono::sys_days(day).time_since_epoch().count();
  const std::int64_t seconds = days * 86400 + clock[0] * 3600 + clock[1] * 60 + clock[2];
  return Seconds(static_cast<double>(seconds) + fraction);
}

/// Removes "08:22:00" from the front.
std::optional<std::array<int, 3>> take_clock(std::string_view& text) {
  std::array<int, 3> clock{};
  for (std::size_t i = 0; i < clock.size(); ++i) {
    if (i > 0 && !take_mark(text, ":")) return std::nullopt;
    clock[i] = take_digits(text, 2);
    if (clock[i] < 0) return std::nullopt;
  }
  return clock;
}

std::chrono::year_month_day day_of(int year, int month, int day) {
  return std::chrono::year(year) / std::chrono::month(static_cast<unsigned>(month)) /
         std::chrono::day(static_cast<unsigned>(day));
}

std::optional<Seconds> find_iso_time(std::string_view text) {
  const int year = take_digits(text, 4);
  if (year < 0 || !take_mark(text, "-")) return std::nullopt;
  const int month = take_digits(text, 2);
  if (month < 0 || !take_mark(text, "-")) return std::nullopt;
  const int day = take_digits(text, 2);
  if (day < 0 || !take_mark(text, "T")) return std::nullopt;
  const auto clock = take_clock(text);
  if (!clock || !text.ends_with("Z")) return std::nullopt;
  text.remove_suffix(1);
  double fraction = 0;
  if (!text.empty()) {
    const bool is_fraction = text.size() > 1 && text[0] == '.' &&
                             text.find_first_not_of("0123456789", 1) == std::string_view::npos;
    const auto found = is_fraction ? find_float(text) : std::nullopt;
    if (!found) return std::nullopt;
    fraction = *found;
  }
  return time_of(day_of(year, month, day), *clock, fraction);
}

/// RFC 9110, section 5.6.7.
std::optional<Seconds> find_http_time(std::string_view text) {
  if (text.size() < 5 || text.substr(3, 2) != ", ") return std::nullopt;
  text.remove_prefix(5);
  const int day = take_digits(text, 2);
  if (day < 0 || !take_mark(text, " ")) return std::nullopt;
  const auto month = std::find(kMonths.begin(), kMonths.end(), text.substr(0, 3));
  if (month == kMonths.end()) return std::nullopt;
  text.remove_prefix(3);
  if (!take_mark(text, " ")) return std::nullopt;
  const int year = take_digits(text, 4);
  if (year < 0 || !take_mark(text, " ")) return std::nullopt;
  const auto clock = take_clock(text);
  if (!clock || text != " GMT") return std::nullopt;
  return time_of(day_of(year, static_cast<int>(month - kMonths.begin()) + 1, day), *clock, 0);
}

}  // namespace

std::optional<Seconds> find_utc_time(std::string_view text) {
  if (const auto time = find_iso_time(text)) return time;
  return find_http_time(text);
}

Seconds utc_now() {
  return Seconds(
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count());
}

}  // namespace motley::run
