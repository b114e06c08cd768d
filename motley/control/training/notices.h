#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "motley/control/listener.h"
#include "motley/control/training/adapting.h"
#include "motley/run/notices/notice_watch.h"

namespace motley::control {

/// Notices that this machine, or devices of it, will be gone, and what a training does of them: the
/// devices that are named leave it, where it is elastic; of the whole machine, or of a device that
/// it cannot do without, it stops, with a checkpoint.
class Notices {
 public:
  /// `sources`: as users write them (docs/formats/notices.md); `hook`: a command that asks for a
  /// replacement, or "". Usage errors of make_notice_source.
  static Result<Notices> start(const std::vector<std::string>& sources, std::string hook);
  /// A signal came that ends the training: it may be some source's notice.
  void note_signal(int signal);
  /// Who hears of each notice before it is obeyed.
  void tell(std::function<void(const run::Notice&)> hear) { hear_ = std::move(hear); }
  /// Takes what has come since. `adapting`: null where devices cannot leave. kStop: the training is
  /// to end. Never waits.
  Wish look(Adapting* adapting, Listener& listener);

 private:
  Wish obey(const run::Notice& notice, Adapting* adapting, Listener& listener) const;
  std::vector<std::unique_ptr<run::NoticeWatch>> watches_;
  std::string hook_;
  std::function<void(const run::Notice&)> hear_;
  Wish wish_ = Wish::kGoOn;
};

}  // namespace motley::control
