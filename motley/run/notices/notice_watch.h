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
  std::optional<Seconds> every;  ///< between two looks; none: as the source wants
  /// So much is left at most when a notice is given. Azure tells of some a week before; such a one
  /// is a note until then.
  Seconds horizon{900};
  int most_failures = 3;  ///< in a row, then it is said and asked less often
  Seconds rarely{60};     ///< between two looks of a source that does not answer
};

/// Looks at a source in a thread of its own, so that whoever trains never waits for a metadata
/// server. Its end takes no longer than a look takes to be woken: milliseconds.
class NoticeWatch {
 public:
  /// The first look begins at once. Runtime error `run.notice`: no descriptor is left.
  static Result<std::unique_ptr<NoticeWatch>> start(std::unique_ptr<NoticeSource> source,
                                                    const NoticeWatchOptions& options = {});
  ~NoticeWatch();
  NoticeWatch(const NoticeWatch&) = delete;
  NoticeWatch& operator=(const NoticeWatch&) = delete;

  /// A notice that has come and was not taken, with what is left of its time by now. Each is given
  /// once; again only if it was taken back in between. Never waits.
  std::optional<Notice> take();
  /// What people may want to know, each once: that the source does not answer, and that it does
  /// again; a notice that is far off.
  std::optional<std::string> take_note();
  /// Signals that mean a notice (NoticeSource), and that one came: the source is looked at at once.
  /// True: it meant one. note_signal may be called from a signal's handler.
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
  // Of the thread alone.
  int failures_ = 0;           // in a row
  bool is_silent_ = false;     // and that was said
  std::vector<Notice> given_;  // of those that stand
  std::vector<Notice> far_;    // that were noted, of those that stand
  std::mutex mutex_;           // of what follows
  std::deque<Coming> coming_;
  std::deque<std::string> notes_;
  std::thread thread_;
};

}  // namespace motley::run
