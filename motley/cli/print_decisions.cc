#include "motley/cli/print_decisions.h"

#include <fmt/format.h>

#include "motley/base/json.h"
#include "motley/base/text.h"

namespace motley::cli {

Json decision_to_json(const policy::Decision& decision) {
  const auto seconds = [](const std::optional<Seconds>& time) {
    return time ? Json(time->value) : Json(nullptr);
  };
  Json json{{"policy", decision.policy},
            {"seen_step", decision.seen_step},
            {"begins", decision.begins},
            {"action", policy::action_to_json(decision.choice.action)},
            {"why", decision.choice.why},
            {"before_s", seconds(decision.before)},
            {"expected_s", seconds(decision.choice.expected)},
            {"came_s", seconds(decision.came)}};
  if (!decision.choice.alternatives.empty())
    json["alternatives"] = policy::alternatives_to_json(decision.choice.alternatives);
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
