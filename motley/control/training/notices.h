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

/// Acts on notices that this machine or its devices will be gone. Named devices leave an elastic
/// training; a notice for the machine, or for an indispensable device, stops it with a checkpoint.
class Notices {
 public:
  /// `sources`: as in docs/formats/notices.md; `hook`: a command that requests a replacement, or
  /// "". Usage errors as in make_notice_source.
  static Result<Notices> start(const std::vector<std::string>& sources, std::string hook);
  /// A signal that ends the training may be a source's notice.
  void note_signal(int signal);
  /// Sets who is notified of each notice before it is obeyed.
  void tell(std::function<void(const run::Notice&)> hear) { hear_ = std::move(hear); }
  /// Handles new notices without waiting; kStop: end. `adapting`: null if devices cannot leave.
  Wish look(Adapting* adapting, Listener& listener);

 private:
  Wish obey(const run::Notice& notice, Adapting* adapting, Listener& listener) const;
  std::vector<std::unique_ptr<run::NoticeWatch>> watches_;
  std::string hook_;
  std::function<void(const run::Notice&)> hear_;
  Wish wish_ = Wish::kGoOn;
};

}  // namespace motley::control
