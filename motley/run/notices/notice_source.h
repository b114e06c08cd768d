#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/run/notices/notice.h"
#include "motley/run/notices/utc_time.h"

namespace motley::run {

/// Where notices come from.
class NoticeSource {
 public:
  virtual ~NoticeSource() = default;
  /// For people: "aws at 169.254.169.254 port 80".
  virtual std::string describe() const = 0;
  /// Between two looks, while it answers.
  virtual Seconds every() const = 0;
  /// What stands now: the same notice again at each look, until it is taken back. May wait as long
  /// as a server takes, but no longer than until something can be read from the descriptor `wake`
  /// (-1: nobody wakes), which is a runtime error `run.woken`. Other runtime errors (`run.http`,
  /// `run.notice`) begin with the source's name; it may be asked again after each. One thread.
  virtual Result<std::optional<Notice>> look(int wake) = 0;
  /// Signals that mean a notice to it; the program must keep them from ending it.
  virtual std::vector<int> signals() const { return {}; }
  /// Says that a signal came; false, and nothing happens, where it is none of these. From any
  /// thread, beside look, and from a signal's handler.
  virtual bool note_signal(int signal);
};

struct NoticeSourceOptions {
  Seconds connect{2};             ///< a metadata server is next control socket, or there is none
  std::optional<Seconds> answer;  ///< none: 5 s; of Azure, whose first answer takes long, 150 s
  std::function<Seconds()> now = utc_now;  ///< seconds since 1970 in UTC
};

/// From what a user writes (docs/formats/notices.md): "aws", "gcp", "azure", each also with
/// "@HOST" or "@HOST:PORT" in place of its metadata server; "slurm" and "kubernetes", also with
/// ":SECONDS" in place of the usual warning; "file:PATH". Asks nobody yet. Usage error
/// `run.notice`, which lists them.
Result<std::unique_ptr<NoticeSource>> make_notice_source(std::string_view text,
                                                         const NoticeSourceOptions& options = {});

}  // namespace motley::run
