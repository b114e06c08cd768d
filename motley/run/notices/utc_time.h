#pragma once

#include <optional>
#include <string_view>

#include "motley/base/units.h"

namespace motley::run {

/// Seconds since 1970 in UTC of what an answer calls a time, in either of its two forms:
/// "2026-09-18T08:22:00Z", with or without a fraction of a second, and "Mon, 19 Sep 2026 18:29:47
/// GMT", whose weekday is not checked. Empty: neither, or a day or time that there is not.
std::optional<Seconds> find_utc_time(std::string_view text);

/// Seconds since 1970 in UTC by this machine's calendar clock.
Seconds utc_now();

}  // namespace motley::run
