#include "motley/run/checkpoints/checkpoint_carrier.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "motley/base/text.h"
#include "motley/run/hosts/elapsed.h"

namespace motley::run {
namespace {

constexpr double kMostQuiet = 60;  // seconds without a byte

std::int64_t step_of(const WorkerEvent& event) {
  return event.fields.value("step", std::int64_t{-1});
}

}  // namespace

CheckpointCarrier::CheckpointCarrier(HostLink& link, const std::string& run_dir)
    : link_(link), store_(run_dir) {}

CheckpointCarrier::~CheckpointCarrier() {
  if (!current_) return;
  if (current_->adopted.valid()) current_->adopted.wait();
  link_.forget(current_->fetch);
  std::error_code code;
  std::filesystem::remove_all(store_.half_written(current_->step), code);
}

bool CheckpointCarrier::keeps_back(const WorkerEvent& event) {
  if (event.event == "evaluation" && event.fields.value("is_best", false))
    best_step_ = step_of(event);
  if (event.event != "checkpoint") return false;
  if (step_of(event) == best_step_) best_ = event;
  newest_ = event;
  return true;
}

Result<std::vector<WorkerEvent>> CheckpointCarrier::get_on() {
  auto done = work();
  if (done) return done;
  const std::optional<Carried> failed = std::exchange(current_, std::nullopt);
  newest_.reset();
  best_.reset();
  if (!failed) return done;
  link_.forget(failed->fetch);
  return tl::make_unexpected(store_.give_up(failed->step, done.error()));
}

Result<std::vector<WorkerEvent>> CheckpointCarrier::work() {
  std::vector<WorkerEvent> safe;
  if (!is_idle()) MOTLEY_RETURN_IF_ERROR(link_.listen());
  if (!current_) MOTLEY_RETURN_IF_ERROR(begin());
  if (current_ && !current_->adopted.valid()) MOTLEY_RETURN_IF_ERROR(receive());
  if (current_ && current_->adopted.valid()) {
    MOTLEY_ASSIGN(std::optional<WorkerEvent> event, settle());
    if (event) safe.push_back(std::move(*event));
  }
  return safe;
}

/// Takes the best one first, which is not newer: so the newest becomes the latest in the end.
Result<void> CheckpointCarrier::begin() {
  if (!newest_ && !best_) return {};
  Carried next;
  next.event = best_ ? *best_ : *newest_;
  next.step = step_of(next.event);
  best_.reset();
  if (newest_ && step_of(*newest_) == next.step) newest_.reset();
  current_ = std::move(next);
  current_->begun = current_->heard = Clock::now();
  MOTLEY_RETURN_IF_ERROR(store_.begin(current_->step));
  const std::string half = store_.half_written(current_->step);
  const std::string name = std::filesystem::path(half).stem().string();
  MOTLEY_ASSIGN(current_->fetch, link_.begin_fetch("run/checkpoint/" + name, half));
  return {};
}

Result<void> CheckpointCarrier::receive() {
  const Arrival& coming = link_.arrival(current_->fetch);
  if (coming.bytes() > current_->bytes) current_->heard = Clock::now();
  carried_ += coming.bytes() - current_->bytes;
  current_->bytes = coming.bytes();
  if (!coming.is_over()) {
    if (seconds_since(current_->heard) < kMostQuiet) return {};
    return runtime_error("host.lost", fmt::format("host {}: nothing of it came for {:.0f} s",
                                                  link_.host(), kMostQuiet));
  }
  MOTLEY_RETURN_IF_ERROR(coming.outcome());
  const bool is_gone = coming.files() == 0;
  link_.forget(current_->fetch);
  if (is_gone) {  // two newer ones existed before it was requested
    std::error_code code;
    std::filesystem::remove_all(store_.half_written(current_->step), code);
    current_.reset();
    return {};
  }
  current_->adopted = std::async(
      std::launch::async, [store = store_, step = current_->step] { return store.adopt(step); });
  return {};
}

Result<std::optional<WorkerEvent>> CheckpointCarrier::settle() {
  if (current_->adopted.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
    return std::optional<WorkerEvent>();
  MOTLEY_ASSIGN(const std::string path, current_->adopted.get());
  WorkerEvent event = std::move(current_->event);
  event.fields["path"] = path;
  event.fields["note"] = fmt::format(
      "checkpoint of step {} has come from host {}: {} in {:.1f} s", current_->step, link_.host(),
      format_bytes(Bytes(current_->bytes)), seconds_since(current_->begun));
  current_.reset();
  return std::optional<WorkerEvent>(std::move(event));
}

}  // namespace motley::run
