#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "motley/base/result.h"
#include "motley/run/notices/notice.h"

namespace motley::run {

/// What a hook finds in its environment: MOTLEY_NOTICE_SOURCE, _WHAT, _LEFT_S (seconds), _CERTAIN
/// (1 or 0) and _DEVICES (with blanks between; empty: all of this machine). "NAME=VALUE" each.
std::vector<std::string> hook_variables(const Notice& notice);

/// Starts a command, by /bin/sh, that asks for a machine or tells somebody, with these variables
/// ("NAME=VALUE") and, of this process's, those whose names begin otherwise. In a session of its
/// own, with nothing to read; what it prints goes to this process's stderr. Nobody waits for it: it
/// outlives this process, and how it ends is nobody's concern. Runtime error `run.notice-hook`: it
/// cannot be started.
Result<void> start_hook(const std::string& command, std::vector<std::string> variables,
                        std::string_view prefix);
/// With those of a notice.
Result<void> start_notice_hook(const std::string& command, const Notice& notice);

}  // namespace motley::run
