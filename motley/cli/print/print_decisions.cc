#include "motley/cli/print/print_decisions.h"

#include <fmt/format.h>

#include "motley/base/json_fields.h"
#include "motley/base/text.h"

namespace motley::cli {

Json decision_to_json(const policy::Decision& decision) {
  const Json all = fields_to_json(decision);
  Json json = Json::object();
  for (const char* key : {"policy", "seen_step", "begins", "action", "why", "before_s",
                          "expected_s", "came_s", "alternatives"})
    if (all.contains(key)) json[key] = all[key];
  return json;
}

std::string decision_lines(const std::vector<policy::Decision>& decisions) {
  if (decisions.size() < 2) return "";
  const auto text_of = [](const std::optional<Seconds>& time) {
    return time ? format_seconds(*time) : std::string("-");
  };
  std::string text = fmt::format("\n  decisions\n  {:>8} {:>10} {:>10} {:>10}   why\n", "step",
                                 "before", "expected", "came");
  for (const policy::Decision& decision : decisions)
    text += fmt::format("  {:>8} {:>10} {:>10} {:>10}   {}\n", decision.begins,
                        text_of(decision.before), text_of(decision.choice.expected),
                        text_of(decision.came), decision.choice.why);
  return text;
}

}  // namespace motley::cli
