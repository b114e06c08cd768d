#include "motley/run/torch/lanes/parts_clock.h"

namespace motley::run {
namespace {

/// The last compute instruction before a position; the number of instructions: none is.
std::size_t last_before(const program::StepShape& shape, std::size_t position) {
  while (position-- > 0)
    if (shape.computes[position]) return position;
  return shape.computes.size();
}

}  // namespace

PartsClock::PartsClock(const program::DeviceProgram& program)
    : shape_(program::find_step_shape(program)),
      is_marked_(program.instructions.size(), false),
      worked_(program.instructions.size(), 0),
      exchanges_(program.instructions.size(), 0) {
  const auto set_mark = [&](std::size_t position) {
    const std::size_t last = last_before(shape_, position);
    if (last < is_marked_.size()) is_marked_[last] = true;
  };
  for (const program::StepShape::Exchange& exchange : shape_.exchanges) set_mark(exchange.after);
  set_mark(shape_.tail);
  for (const auto& [position, exchange] : shape_.updates) is_marked_[position] = true;
}

double PartsClock::worked_before(std::size_t position) const {
  const std::size_t last = last_before(shape_, position);
  return last < worked_.size() ? worked_[last] : 0;
}

StepParts PartsClock::parts() const {
  StepParts parts;
  for (const program::StepShape::Exchange& exchange : shape_.exchanges) {
    if (exchange.blocking) {
      parts.blocking += exchanges_[exchange.position];
      continue;
    }
    parts.ready.push_back(worked_before(exchange.after));
    parts.exchange.push_back(exchanges_[exchange.position]);
  }
  parts.update.assign(parts.ready.size(), 0);
  parts.end = worked_before(shape_.tail);
  double before = parts.end;
  for (const auto& [position, exchange] : shape_.updates) {
    const double took = worked_[position] - before;
    before = worked_[position];
    (exchange < 0 ? parts.end : parts.update[static_cast<std::size_t>(exchange)]) += took;
  }
  return parts;
}

}  // namespace motley::run
