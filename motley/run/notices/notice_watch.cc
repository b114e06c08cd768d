#include "motley/run/notices/notice_watch.h"

#include <fmt/format.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "motley/base/deadline.h"
#include "motley/base/quiet_thread.h"
#include "motley/base/text.h"
#include "motley/run/notices/waiting.h"

namespace motley::run {
namespace {

bool is_among(const std::vector<Notice>& notices, const Notice& notice) {
  return std::any_of(notices.begin(), notices.end(),
                     [&](const Notice& other) { return other.is_same(notice); });
}

}  // namespace

NoticeWatch::NoticeWatch(std::unique_ptr<NoticeSource> source, const NoticeWatchOptions& options,
                         Descriptor wake)
    : source_(std::move(source)), options_(options), wake_(std::move(wake)) {
  thread_ = start_quiet_thread([this] { run(); });
}

Result<std::unique_ptr<NoticeWatch>> NoticeWatch::start(std::unique_ptr<NoticeSource> source,
                                                        const NoticeWatchOptions& options) {
  Descriptor wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.is_open()) return runtime_error("run.notice", std::strerror(errno));
  return std::unique_ptr<NoticeWatch>(new NoticeWatch(std::move(source), options, std::move(wake)));
}

NoticeWatch::~NoticeWatch() {
  is_over_ = true;
  ::eventfd_write(wake_.number(), 1);
  thread_.join();
}

std::optional<Notice> NoticeWatch::take() {
  const std::lock_guard lock(mutex_);
  if (coming_.empty()) return std::nullopt;
  Coming first = std::move(coming_.front());
  coming_.pop_front();
  const Seconds passed(std::chrono::duration<double>(Clock::now() - first.seen).count());
  first.notice.left = std::max(first.notice.left - passed, Seconds(0));
  return std::move(first.notice);
}

std::optional<std::string> NoticeWatch::take_note() {
  const std::lock_guard lock(mutex_);
  if (notes_.empty()) return std::nullopt;
  std::string first = std::move(notes_.front());
  notes_.pop_front();
  return first;
}

bool NoticeWatch::note_signal(int signal) {
  if (!source_->note_signal(signal)) return false;
  const int fault = errno;
  ::eventfd_write(wake_.number(), 1);
  errno = fault;  // of the code that a handler interrupts
  return true;
}

void NoticeWatch::run() {
  while (!is_over_) {
    const auto seen = source_->look(wake_.number());
    if (is_over_) return;
    hear(seen);
    const Seconds pause = is_silent_ ? options_.rarely : options_.every.value_or(source_->every());
    if (wait_on(-1, 0, Deadline::after(pause), wake_.number()) != Woke::kTold) continue;
    eventfd_t count = 0;
    ::eventfd_read(wake_.number(), &count);
  }
}

void NoticeWatch::hear(const Result<std::optional<Notice>>& seen) {
  if (!seen) {
    // Earlier notices may still be current.
    if (++failures_ < options_.most_failures || is_silent_) return;
    is_silent_ = true;
    return note(fmt::format("no notices from {}; asked every {} from now on: {}",
                            source_->describe(), format_seconds(options_.rarely),
                            seen.error().message));
  }
  if (is_silent_) note(fmt::format("{} answers again", source_->describe()));
  failures_ = 0;
  is_silent_ = false;
  if (*seen) return hear(**seen);
  given_.clear();
  far_.clear();
}

void NoticeWatch::hear(const Notice& notice) {
  if (is_among(given_, notice)) return;
  if (notice.left > options_.horizon) {
    if (is_among(far_, notice)) return;
    far_.push_back(notice);
    return note(
        fmt::format("{}: {}, in {}", notice.source, notice.what, format_seconds(notice.left)));
  }
  given_.push_back(notice);
  const std::lock_guard lock(mutex_);
  coming_.push_back({notice, Clock::now()});
}

void NoticeWatch::note(std::string text) {
  const std::lock_guard lock(mutex_);
  notes_.push_back(std::move(text));
}

}  // namespace motley::run
