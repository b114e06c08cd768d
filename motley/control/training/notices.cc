#include "motley/control/training/notices.h"

#include <fmt/format.h>

#include <utility>

#include "motley/base/text.h"
#include "motley/run/notices/notice_hook.h"

namespace motley::control {

Result<Notices> Notices::start(const std::vector<std::string>& sources, std::string hook) {
  Notices notices;
  notices.hook_ = std::move(hook);
  for (const std::string& text : sources) {
    MOTLEY_ASSIGN(auto source, run::make_notice_source(text));
    MOTLEY_ASSIGN(notices.watches_.emplace_back(), run::NoticeWatch::start(std::move(source)));
  }
  return notices;
}

void Notices::note_signal(int signal) {
  for (const auto& watch : watches_) watch->note_signal(signal);
}

Wish Notices::look(Adapting* adapting, Listener& listener) {
  for (const auto& watch : watches_) {
    while (const auto note = watch->take_note()) listener.note(*note);
    while (const auto notice = watch->take()) {
      listener.note(fmt::format("notice of {}: {}, {:.0f} s are left", notice->source, notice->what,
                                notice->left.value));
      if (!hook_.empty())
        if (const auto started = run::start_notice_hook(hook_, *notice); !started)
          listener.note("warning: " + started.error().message);
      if (hear_) hear_(*notice);
      if (notice->is_certain && obey(*notice, adapting, listener) == Wish::kStop)
        wish_ = Wish::kStop;
    }
  }
  return wish_;
}

Wish Notices::obey(const run::Notice& notice, Adapting* adapting, Listener& listener) const {
  if (notice.is_whole_machine() || adapting == nullptr) {
    listener.note("stopping, with a checkpoint");
    return Wish::kStop;
  }
  for (const std::string& device : notice.devices) {
    const auto left = adapting->release(device);
    if (left) continue;
    const bool is_absent = left.error().code == "elastic.absent";
    listener.note(left.error().message + (is_absent ? "" : "; stopping, with a checkpoint"));
    if (!is_absent) return Wish::kStop;
  }
  return Wish::kGoOn;
}

}  // namespace motley::control
