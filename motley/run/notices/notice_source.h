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

class NoticeSource {
 public:
  virtual ~NoticeSource() = default;
  virtual std::string describe() const = 0;
  /// Returns the interval between two polls while the source answers.
  virtual Seconds every() const = 0;
  /// Returns the current notice: the same one at each call until it is withdrawn. May wait for a
  /// server, but only until the descriptor `wake` becomes readable (-1: none), which is a runtime
  /// error `run.woken`. Other runtime errors (`run.http`, `run.notice`) begin with the source's
  /// name; the caller may retry after each. Called by one thread.
  virtual Result<std::optional<Notice>> look(int wake) = 0;
  /// Returns the signals that are a notice to this source. The program must not let them end it.
  virtual std::vector<int> signals() const { return {}; }
  /// Records a signal; false: not one of these. Any thread, during look, and in a signal handler.
  virtual bool note_signal(int signal);
};

struct NoticeSourceOptions {
  Seconds connect{2};             ///< a metadata server is close by, or does not exist
  std::optional<Seconds> answer;  ///< none: 5 s; 150 s for Azure, whose first answer is slow
  std::function<Seconds()> now = utc_now;  ///< seconds since 1970 in UTC
};

/// Makes a source (docs/formats/notices.md): "aws", "gcp" or "azure", each optionally with "@HOST"
/// or "@HOST:PORT" as metadata server; "slurm" or "kubernetes", optionally with ":SECONDS" of
/// warning; "file:PATH". Queries nothing yet. Usage error `run.notice`, which lists them.
Result<std::unique_ptr<NoticeSource>> make_notice_source(std::string_view text,
                                                         const NoticeSourceOptions& options = {});

}  // namespace motley::run
