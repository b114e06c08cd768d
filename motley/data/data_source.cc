#include "motley/data/data_source.h"

#include <fmt/format.h>

#include "motley/base/json.h"
#include "motley/base/text.h"

namespace motley::data {

Result<void> parse_data_path(const std::string& text, DataSource& source) {
  source.path = text;
  const std::size_t open = text.rfind('[');
  if (open == std::string::npos || !text.ends_with(']')) return {};
  const std::string inside = text.substr(open + 1, text.size() - open - 2);
  const std::size_t colon = inside.find(':');
  const std::string begin = inside.substr(0, colon);
  const std::string end = colon == std::string::npos ? "" : inside.substr(colon + 1);
  const auto first = begin.empty() ? std::optional<std::int64_t>(0) : find_integer(begin);
  const auto last = find_integer(end);
  if (colon == std::string::npos || !first || (!end.empty() && !last))
    return usage_error("data.slice", fmt::format("{}: found [{}], wanted samples as "
                                                 "FILE[BEGIN:END], such as data.npz[:1500]",
                                                 text, inside));
  source.path = text.substr(0, open);
  source.begin = *first;
  if (!end.empty()) source.end = *last;
  return {};
}

Json data_source_to_json(const DataSource& source) {
  return Json{{"path", source.path},
              {"begin", source.begin},
              {"end", source.end ? Json(*source.end) : Json(nullptr)},
              {"token_width", source.token_width},
              {"seq", source.seq}};
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
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  return source;
}

}  // namespace motley::data
