#include "motley/data/data_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "motley/base/json.h"
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

/// A place among so many samples, from the end where it is below 0.
std::int64_t place_among(std::int64_t at, std::int64_t samples) {
  return std::clamp<std::int64_t>(at < 0 ? at + samples : at, 0, samples);
}

Json loading_to_json(const Loading& loading) {
  return Json{{"python", loading.python},
              {"processes", loading.processes},
              {"pads", loading.pads},
              {"seed", loading.seed}};
}

Result<Loading> loading_from_json(const Json& json, const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, where));
  Loading loading;
  MOTLEY_ASSIGN(loading.python, object.string("python"));
  MOTLEY_ASSIGN(const std::int64_t processes, object.integer("processes"));
  loading.processes = static_cast<int>(std::clamp<std::int64_t>(processes, 0, 1 << 16));
  MOTLEY_ASSIGN(const std::int64_t seed, object.integer("seed"));
  loading.seed = static_cast<std::uint64_t>(seed);
  MOTLEY_ASSIGN(const Json* pads, object.member("pads"));
  MOTLEY_ASSIGN(JsonObject values, JsonObject::make(*pads, where + ": pads"));
  for (const auto& [name, value] : pads->items()) {
    MOTLEY_ASSIGN(loading.pads[name], values.number(name.c_str()));
  }
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  return loading;
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

Json data_source_to_json(const DataSource& source) {
  Json json{{"path", source.path},
            {"begin", source.begin},
            {"end", source.end ? Json(*source.end) : Json(nullptr)},
            {"token_width", source.token_width},
            {"seq", source.seq}};
  if (!is_loaded(source)) return json;
  json["function"] = source.function;
  json["samples"] = source.samples;
  json["loading"] = loading_to_json(source.loading);
  return json;
}

Result<DataSource> data_source_from_json(const Json& json, const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, where));
  DataSource source;
  MOTLEY_ASSIGN(source.path, object.string("path"));
  MOTLEY_ASSIGN(source.begin, object.integer("begin"));
  MOTLEY_ASSIGN(const Json* end, object.member("end"));
  if (end->is_number_integer()) source.end = end->get<std::int64_t>();
  MOTLEY_ASSIGN(source.token_width, object.integer("token_width"));
  MOTLEY_ASSIGN(source.seq, object.integer("seq"));
  if (object.has("loading")) {
    MOTLEY_ASSIGN(source.function, object.string("function"));
    MOTLEY_ASSIGN(source.samples, object.integer("samples"));
    MOTLEY_ASSIGN(const Json* loading, object.member("loading"));
    MOTLEY_ASSIGN(source.loading, loading_from_json(*loading, where + ": loading"));
  }
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  return source;
}

}  // namespace motley::data
