#pragma once

#include <string>

#include "motley/base/units.h"

namespace motley::cluster {

/// Print a quantity with up to six digits in the largest unit that keeps the number at 1 or more:
/// "1Gbps", "2.5Gbps", "100us", "1.5s". Values must be finite and >= 0.
std::string short_rate(BytesPerSecond rate);
std::string short_seconds(Seconds seconds);

/// Print exactly: parse_bytes, parse_rate and parse_seconds (motley/base/text.h) return the value.
/// Bytes in the largest unit that divides them ("512MiB", "1500B"). Rates and times as above or, if
/// six digits are not enough, as plain bytes per second or seconds ("123456789.25").
std::string print_bytes(Bytes bytes);
std::string print_rate(BytesPerSecond rate);
std::string print_seconds(Seconds seconds);

}  // namespace motley::cluster
