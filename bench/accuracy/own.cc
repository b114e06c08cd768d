// Motley's own runs: predictions and measurements of bench/own_runs.py.
#include "bench/accuracy/row.h"
#include "motley/base/file.h"
#include "motley/base/json.h"

namespace motley::bench {
namespace {

Result<Case> read_case(const Json& json, const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, where));
  Case result;
  MOTLEY_ASSIGN(result.predicted.value, object.number("predicted"));
  MOTLEY_ASSIGN(result.predicted.low, object.number("low"));
  MOTLEY_ASSIGN(result.predicted.high, object.number("high"));
  MOTLEY_ASSIGN(result.measured, object.number("measured"));
  return result;
}

}  // namespace

Rows own_rows(const std::string& path) {
  const auto text = read_file(path);
  if (!text) return usage_error("bench.own", path + " is not there; run `make bench-own_runs`");
  MOTLEY_ASSIGN(const Json json, parse_json(*text, path));
  std::vector<Row> rows;
  for (const Json& each : json.at("rows")) {
    MOTLEY_ASSIGN(JsonObject object, JsonObject::make(each, path));
    Row row;
    MOTLEY_ASSIGN(row.set, object.string("set"));
    MOTLEY_ASSIGN(row.metric, object.string("metric"));
    MOTLEY_ASSIGN(row.protocol, object.string("protocol"));
    MOTLEY_ASSIGN(row.to_reach, object.number("to_reach"));
    MOTLEY_ASSIGN(const Json* cases, object.member("cases"));
    for (const Json& one : *cases) {
      MOTLEY_ASSIGN(const Case read, read_case(one, path));
      row.cases.push_back(read);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace motley::bench
