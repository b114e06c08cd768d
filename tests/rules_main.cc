// Test tool: prints the sharding rules of a model's operators at a batch, one JSON object a line.
//   rules_tool MODEL BATCH

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <vector>

#include "motley/base/json.h"
#include "motley/base/text.h"
#include "motley/graph/model_file.h"
#include "motley/graph/rules/sharding_rule.h"

namespace {

using namespace motley;

std::string split_name(graph::Split split) {
  switch (split) {
    case graph::Split::kNever:
      return "never";
    case graph::Split::kPlain:
      return "plain";
    case graph::Split::kMean:
      return "mean";
    case graph::Split::kRewritten:
      return "rewritten";
  }
  return "";
}

Json rule_to_json(const graph::ShardingRule& rule) {
  Json factors = Json::array(), slots = Json::array();
  for (const graph::Factor& factor : rule.factors)
    factors.push_back({{"size", factor.size}, {"split", split_name(factor.split)}});
  for (const graph::SizeSlot& slot : rule.slots)
    slots.push_back({{"argument", slot.argument},
                     {"element", slot.element},
                     {"factors", slot.factors},
                     {"multiple", slot.multiple}});
  std::vector<int> operands;
  for (const ValueId id : rule.operands) operands.push_back(static_cast<int>(id.value));
  return {{"factors", factors},
          {"operands", operands},
          {"operand_factors", rule.operand_factors},
          {"result_factors", rule.result_factors},
          {"slots", slots},
          {"terms", rule.terms},
          {"independent", rule.independent},
          {"ignored", rule.ignored},
          {"text", graph::print_rule(rule)}};
}

Result<void> print_rules(const std::string& path, std::int64_t batch) {
  MOTLEY_ASSIGN(const graph::Model model, graph::read_model(path));
  const graph::Sizes sizes{{"batch", batch}};
  for (std::size_t i = 0; i < model.graph.ops.size(); ++i) {
    const auto rule = graph::find_rule(model.graph, OpId(static_cast<std::int64_t>(i)), sizes);
    fmt::print("{}\n", rule ? rule_to_json(*rule).dump() : "null");
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  const auto batch = argc == 3 ? find_integer(argv[2]) : std::nullopt;
  if (!batch || *batch < 1) {
    fmt::print(stderr, "usage: rules_tool MODEL BATCH\n");
    return 2;
  }
  const auto done = print_rules(argv[1], *batch);
  if (!done) fmt::print(stderr, "{}: {}\n", done.error().code, done.error().message);
  return done ? 0 : 1;
}
