#pragma once

#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/run/notices/notice.h"

namespace motley::run {

/// What a hook finds in its environment: MOTLEY_NOTICE_SOURCE, _WHAT, _LEFT_S (seconds), _CERTAIN
/// (1 or 0) and _DEVICES (with blanks between; empty: all of this machine). "NAME=VALUE" each.
std::vector<std::string> hook_variables(const Notice& notice);

/// Starts a command, by /bin/sh, that asks for a replacement or tells somebody. In a session of its
/// own, with nothing to read; what it prints goes to this process's stderr. Nobody waits for it: it
/// outlives this process, and how it ends is nobody's concern. Runtime error `run.notice-hook`: it
/// cannot be started.
Result<void> start_notice_hook(const std::string& command, const Notice& notice);

}  // namespace motley::run
