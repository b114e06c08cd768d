#pragma once

#include <optional>
#include <string_view>

#include "motley/base/units.h"

namespace motley::run {

/// Parses a time in either of two forms to seconds since 1970 in UTC: "2026-09-18T08:22:00Z", with
/// or without a fraction of a second, and "Mon, 19 Sep 2026 18:29:47 GMT", whose weekday is not
/// checked. Empty: neither form, or no valid day or time.
std::optional<Seconds> find_utc_time(std::string_view text);

Seconds utc_now();

}  // namespace motley::run
