#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/policy/policy.h"

namespace motley::policy {

/// A policy's decision as a run keeps it: a line of `decisions.jsonl` (docs/formats/decisions.md).
struct Decision {
  std::string policy;
  std::int64_t seen_step = 0;  ///< steps finished at the decision
  Seconds at;                  ///< since the run began
  Choice choice;
  std::int64_t begins = 0;  ///< first step that follows it; seen_step for a `Tell`
  /// Median time of the steps that followed it, if any, and of the steps before it.
  std::optional<Seconds> came, before;
  /// The plan that resulted, in its text form; "": unchanged.
  std::string plan;
  bool operator==(const Decision&) const = default;
  static void fields(auto& it, auto& field) {
    field("policy", it.policy)("seen_step", it.seen_step)("at", it.at)("action", it.choice.action);
    field("expected_s", it.choice.expected)("why", it.choice.why)("begins", it.begins);
    field("came_s", it.came)("before_s", it.before)("plan", it.plan);
    field.when(!it.choice.alternatives.empty(), "alternatives", it.choice.alternatives);
  }
};

std::string print_decision(const Decision& decision);
Result<Decision> parse_decision(std::string_view line, const std::string& where);

}  // namespace motley::policy
