#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "motley/base/descriptor.h"
#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/run/notices/notice.h"
#include "motley/run/notices/notice_source.h"

namespace motley::run {

struct NoticeWatchOptions {
  std::optional<Seconds> every;  ///< between two polls; none: the source's own interval
  /// A notice with more time left is only a note until then. Azure announces some a week ahead.
  Seconds horizon{900};
  int most_failures = 3;  ///< in a row, then a note is made and polling slows down
  Seconds rarely{60};     ///< between two polls of a source that does not answer
};

/// Polls a source in its own thread: training never waits for a server. Ends within milliseconds.
class NoticeWatch {
 public:
  /// The first poll begins at once. Runtime error `run.notice`: no descriptor is left.
  static Result<std::unique_ptr<NoticeWatch>> start(std::unique_ptr<NoticeSource> source,
                                                    const NoticeWatchOptions& options = {});
  ~NoticeWatch();
  NoticeWatch(const NoticeWatch&) = delete;
  NoticeWatch& operator=(const NoticeWatch&) = delete;

  /// Returns a new notice, with its time left as of now; again only if withdrawn. Never waits.
  std::optional<Notice> take();
  /// Returns a new note for people: a source that stops or resumes answering, or a notice far off.
  std::optional<std::string> take_note();
  /// signals() are the signals that are a notice (NoticeSource). note_signal polls the source at
  /// once; true: it was one of them. It may be called from a signal handler.
  std::vector<int> signals() const { return source_->signals(); }
  bool note_signal(int signal);

 private:
  using Clock = std::chrono::steady_clock;
  struct Coming {
    Notice notice;
    Clock::time_point seen;
  };
  NoticeWatch(std::unique_ptr<NoticeSource> source, const NoticeWatchOptions& options,
              Descriptor wake);
  void run();
  void hear(const Result<std::optional<Notice>>& seen);
  void hear(const Notice& notice);
  void note(std::string text);

  std::unique_ptr<NoticeSource> source_;
  NoticeWatchOptions options_;
  Descriptor wake_;
  std::atomic<bool> is_over_ = false;
  // Used by the thread alone:
  int failures_ = 0;           // in a row
  bool is_silent_ = false;     // and noted
  std::vector<Notice> given_;  // delivered and still current
  std::vector<Notice> far_;    // noted and still current
  std::mutex mutex_;           // guards what follows
  std::deque<Coming> coming_;
  std::deque<std::string> notes_;
  std::thread thread_;
};

}  // namespace motley::run
