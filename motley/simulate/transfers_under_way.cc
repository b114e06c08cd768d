#include "motley/simulate/transfers_under_way.h"

#include <algorithm>

#include "motley/simulate/index.h"

namespace motley::simulate {
const std::vector<cost::TransferPhase>& TransfersUnderWay::phases_of(std::int32_t task) const {
  return graph_.transfers[static_cast<std::size_t>(-1 - graph_.durations[at(task)])].phases;
}

Nanoseconds TransfersUnderWay::enter(std::int32_t task, std::size_t phase, Nanoseconds now) {
  const std::vector<cost::TransferPhase>& phases = phases_of(task);
  // Delays of phases without flows add up at once: nothing can change them.
  for (; phase < phases.size(); ++phase) {
    now += to_nanoseconds(phases[phase].delay);
    if (phases[phase].flows.empty()) continue;
    starts_.push({now, task, phase});
    return kNotFinished;
  }
  return now;
}

Nanoseconds TransfersUnderWay::next_time() {
  const Nanoseconds end = network_.next_end();
  return starts_.empty() ? end : std::min(end, starts_.top().at);
}

void TransfersUnderWay::advance(std::vector<Finished>& finished) {
  const Nanoseconds next_end = network_.next_end();
  // At the same time ends come first: they free their share, and starts get rates once.
  if (!starts_.empty() && starts_.top().at < next_end) return start_next();
  ended_.clear();
  network_.end_next(ended_);
  for (const std::int32_t flow : ended_) {
    Owner& owner = owners_[at(flow_owner_[at(flow)])];
    if (--owner.flows > 0) continue;
    free_owners_.push_back(flow_owner_[at(flow)]);
    const auto [task, phase] = std::pair(owner.task, owner.phase);
    if (const Nanoseconds end = enter(task, phase + 1, next_end); end != kNotFinished)
      finished.emplace_back(task, end);
  }
}

void TransfersUnderWay::start_next() {
  const Start start = starts_.top();
  starts_.pop();
  const std::vector<cost::Flow>& flows = phases_of(start.task)[start.phase].flows;
  std::int32_t owner = static_cast<std::int32_t>(owners_.size());
  if (free_owners_.empty()) {
    owners_.emplace_back();
  } else {
    owner = free_owners_.back();
    free_owners_.pop_back();
  }
  owners_[at(owner)] = {start.task, start.phase, flows.size()};
  for (const cost::Flow& flow : flows) {
    const std::int32_t number = network_.start(start.at, flow);
    flow_owner_.resize(std::max(flow_owner_.size(), at(number) + 1));
    flow_owner_[at(number)] = owner;
  }
}

}  // namespace motley::simulate
