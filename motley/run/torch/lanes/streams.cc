#include "motley/run/torch/lanes/streams.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

#include "motley/run/torch/exchange/clock.h"

namespace motley::run {

namespace {

c10::impl::VirtualGuardImpl guard(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type());
}

}  // namespace

Streams::Streams(c10::Device device, std::size_t instructions, std::size_t steps)
    : device_(device),
      first_(current()),
      instructions_(instructions),
      kept_(std::max<std::size_t>(steps, 1)) {}

Streams::Step Streams::make_step() const {
  const auto events = [&](std::size_t count) {
    std::vector<c10::Event> made;
    made.reserve(count);
    for (std::size_t i = 0; i < count; ++i)
      made.emplace_back(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
    return made;
  };
  return {-1, 0, events(2), events(instructions_), events(instructions_), events(instructions_)};
}

void Streams::begin_step(std::int64_t step) {
  current_ = steps_.size() < kept_ ? steps_.size() : (current_ + 1) % kept_;
  if (current_ == steps_.size()) steps_.push_back(make_step());
  steps_[current_].step = step;
  steps_[current_].ends[0].record(current());
}

void Streams::end_step() {
  steps_[current_].ends[1].record(current());
  synchronize();
  steps_[current_].end_ns = monotonic_ns();
}

void Streams::use_own_stream() {
  guard(device_).setDevice(device_);
  guard(device_).exchangeStream(guard(device_).getStreamFromGlobalPool(device_));
}

void Streams::hand_over(const at::Tensor& tensor) const {
  if (tensor.numel() > 0) tensor.record_stream(first_);
}

void Streams::mark(int id) {
  steps_[current_].marks[static_cast<std::size_t>(id)].record(current());
}

void Streams::wait_for(int id) const {
  steps_[current_].marks[static_cast<std::size_t>(id)].block(current());
}

void Streams::mark_halt(int id) {
  steps_[current_].halts[static_cast<std::size_t>(id)].record(current());
}

void Streams::mark_resumption(int id) {
  steps_[current_].resumptions[static_cast<std::size_t>(id)].record(current());
}

std::int64_t Streams::halted(int id) const {
  const auto at = static_cast<std::size_t>(id);
  return between(steps_[current_].halts[at], steps_[current_].resumptions[at]);
}

std::int64_t Streams::done_after(int id) const {
  const Step& step = steps_[current_];
  return between(step.ends[0], step.marks[static_cast<std::size_t>(id)]);
}

void Streams::synchronize() const { current().synchronize(); }

std::int64_t Streams::between(const c10::Event& a, const c10::Event& b) {
  return static_cast<std::int64_t>(a.elapsedTime(b) * 1e6);  // from milliseconds
}

std::vector<Streams::Span> Streams::spans(std::int64_t step, const std::vector<int>& ids,
                                          const std::vector<bool>& waits) const {
  std::vector<Span> spans;
  const auto found = std::find_if(steps_.begin(), steps_.end(),
                                  [&](const Step& each) { return each.step == step; });
  if (found == steps_.end() || ids.empty()) return spans;
  const auto time_of = [&](const c10::Event& event) {
    return found->end_ns - between(event, found->ends[1]);
  };
  std::int64_t before = time_of(found->ends[0]);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto at = static_cast<std::size_t>(ids[i]);
    const std::int64_t end = time_of(found->marks[at]);
    spans.push_back({waits[i] ? time_of(found->resumptions[at]) : before, end});
    before = end;
  }
  return spans;
}

c10::Stream Streams::current() const { return guard(device_).getStream(device_); }

void reset_device_peak(c10::Device device) {
  c10::getDeviceAllocator(device.type())->resetPeakStats(device.index());
}

std::int64_t device_peak(c10::Device device) {
  const auto stats = c10::getDeviceAllocator(device.type())->getDeviceStats(device.index());
  return stats.allocated_bytes[0].peak;  // 0: all pools together
}

std::int64_t device_in_use(c10::Device device) {
  const auto stats = c10::getDeviceAllocator(device.type())->getDeviceStats(device.index());
  return stats.allocated_bytes[0].current;
}

}  // namespace motley::run
