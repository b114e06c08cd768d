#include "peers/hap/program_summary.h"

#include <fmt/format.h>

#include <cctype>
#include <map>

namespace motley::peers {
namespace {

std::string without_numbers(std::string_view name) {
  std::string result;
  for (const char c : name) {
    const bool is_digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (!is_digit) result += c;
    if (is_digit && (result.empty() || result.back() != '*')) result += '*';
  }
  return result;
}

}  // namespace

std::string_view conversion_name(const HapConversion& conversion) {
  if (conversion.from == HapForm::identity()) return "slice";
  if (conversion.to == HapForm::identity())
    return conversion.from == HapForm::reduce() ? "all-reduce" : "all-gather";
  return conversion.from == HapForm::reduce() ? "reduce-scatter" : "all-to-all";
}

std::string summarize(const SpmdProgram& program, const ReferenceGraph& graph) {
  const auto name = [&graph](TensorId id) {
    return without_numbers(graph.tensors[id.index()].name);
  };
  std::map<std::string, int> split, converted;
  for (const SpmdStep& step : program.steps) {
    for (const Load& load : step.loads) {
      const bool is_parameter = graph.tensors[load.tensor.index()].role == TensorRole::kParameter;
      if (is_parameter && load.form != HapForm::identity())
        ++split[name(load.tensor) + " " + load.form.text()];
    }
    for (const HapConversion& conversion : step.conversions)
      ++converted[fmt::format("{} {}", conversion_name(conversion), name(conversion.tensor))];
  }
  std::string text;
  for (const auto& lines : {split, converted})
    for (const auto& [line, count] : lines)
      text += (text.empty() ? "" : "; ") + (count > 1 ? fmt::format("{} x ", count) : "") + line;
  return text.empty() ? "pure data parallel" : text;
}

}  // namespace motley::peers
