#include "motley/data/data_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "motley/base/text.h"

namespace motley::data {
namespace {

constexpr std::string_view kPython = "python:";

tl::unexpected<Error> bad_slice(const std::string& text, const std::string& inside) {
  return usage_error("data.slice", fmt::format("{}: found [{}], wanted samples as "
                                               "FILE[BEGIN:END], such as data.npz[:1500]",
                                               text, inside));
}

/// Takes "[BEGIN:END]" from the end of a text.
Result<std::string> take_slice(const std::string& text, DataSource& source) {
  source.begin = 0;
  source.end.reset();
  const std::size_t open = text.rfind('[');
  if (open == std::string::npos || !text.ends_with(']')) return text;
  const std::string inside = text.substr(open + 1, text.size() - open - 2);
  const std::size_t colon = inside.find(':');
  if (colon == std::string::npos) return bad_slice(text, inside);
  const std::string begin = inside.substr(0, colon), end = inside.substr(colon + 1);
  const auto first = begin.empty() ? std::optional<std::int64_t>(0) : find_integer(begin);
  const auto last = find_integer(end);
  if (!first || (!end.empty() && !last)) return bad_slice(text, inside);
  source.begin = *first;
  if (!end.empty()) source.end = *last;
  return text.substr(0, open);
}

/// Returns a position among `samples`, counted from the end if it is negative.
std::int64_t place_among(std::int64_t at, std::int64_t samples) {
  return std::clamp<std::int64_t>(at < 0 ? at + samples : at, 0, samples);
}

}  // namespace

bool is_loaded(const DataSource& source) {
  const auto ends = [&](const char* ending) { return source.path.ends_with(ending); };
  return !source.function.empty() || ends(".parquet") || ends(".arrow") || ends(".feather");
}

Result<Slice> slice_of(const DataSource& source, std::int64_t samples) {
  const Slice slice{place_among(source.begin, samples),
                    place_among(source.end.value_or(samples), samples)};
  if (slice.begin < slice.end) return slice;
  return usage_error("data.slice", fmt::format("{}: the slice has no sample; the data has {}",
                                               source.path, samples));
}

Result<void> parse_data_path(const std::string& text, DataSource& source) {
  MOTLEY_ASSIGN(source.path, take_slice(text, source));
  source.function.clear();
  if (!source.path.starts_with(kPython)) return {};
  const std::string named = source.path.substr(kPython.size());
  const std::size_t colon = named.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == named.size())
    return usage_error("data.python", fmt::format("{}: wanted python:FILE.py:FUNCTION, a function "
                                                  "that returns a dataset",
                                                  text));
  source.path = named.substr(0, colon);
  source.function = named.substr(colon + 1);
  return {};
}

Result<std::map<std::string, double>> parse_pads(const std::string& text) {
  std::map<std::string, double> pads;
  for (const std::string_view part : split(text, ',')) {
    const std::size_t equals = part.find('=');
    const bool is_named = equals != std::string_view::npos;
    const std::string name(is_named ? part.substr(0, equals) : "");
    const auto value = find_float(is_named ? part.substr(equals + 1) : part);
    if (!value || !std::isfinite(*value) || pads.contains(name))
      return usage_error("cli.pad", fmt::format("--pad: found '{}', wanted a number, or "
                                                "INPUT=NUMBER,...",
                                                text));
    pads[name] = *value;
  }
  return pads;
}

}  // namespace motley::data
