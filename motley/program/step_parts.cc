#include "motley/program/step_parts.h"

namespace motley::program {
namespace {

/// Returns the last compute instruction before a position; the number of instructions if none.
std::size_t last_computed(const StepShape& shape, std::size_t position) {
  while (position-- > 0)
    if (shape.computes[position]) return position;
  return shape.computes.size();
}

}  // namespace

std::vector<bool> marks_parts(const StepShape& shape) {
  std::vector<bool> marks(shape.computes.size(), false);
  const auto set_mark = [&](std::size_t position) {
    const std::size_t last = last_computed(shape, position);
    if (last < marks.size()) marks[last] = true;
  };
  for (const StepShape::Exchange& exchange : shape.exchanges) set_mark(exchange.after);
  set_mark(shape.tail);
  for (const auto& [position, exchange] : shape.updates) marks[position] = true;
  return marks;
}

StepParts find_step_parts(const StepShape& shape, std::span<const double> worked,
                          std::span<const double> exchanges) {
  const auto worked_before = [&](std::size_t position) {
    const std::size_t last = last_computed(shape, position);
    return last < worked.size() ? worked[last] : 0;
  };
  StepParts parts;
  for (const StepShape::Exchange& exchange : shape.exchanges) {
    if (exchange.blocking) {
      parts.blocking += exchanges[exchange.position];
      continue;
    }
    parts.ready.push_back(worked_before(exchange.after));
    parts.exchange.push_back(exchanges[exchange.position]);
  }
  parts.update.assign(parts.ready.size(), 0);
  parts.end = worked_before(shape.tail);
  double before = parts.end;
  for (const auto& [position, exchange] : shape.updates) {
    const double took = worked[position] - before;
    before = worked[position];
    (exchange < 0 ? parts.end : parts.update[static_cast<std::size_t>(exchange)]) += took;
  }
  return parts;
}

}  // namespace motley::program
