#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "motley/base/result.h"
#include "motley/run/notices/notice.h"

namespace motley::run {

/// Returns a hook's environment as "NAME=VALUE": MOTLEY_NOTICE_SOURCE, _WHAT, _LEFT_S (seconds),
/// _CERTAIN (1 or 0) and _DEVICES (separated by blanks; empty: all of this machine).
std::vector<std::string> hook_variables(const Notice& notice);

/// Starts a command through /bin/sh, for example to rent a machine or notify somebody. Its
/// environment has these variables ("NAME=VALUE") and this process's other ones, without names that
/// begin with `prefix`. It has its own session, no input, and this process's stderr as output. It
/// outlives this process; its status is ignored. Runtime error `run.notice-hook`: no start.
Result<void> start_hook(const std::string& command, std::vector<std::string> variables,
                        std::string_view prefix);
/// Does the same with the variables of a notice.
Result<void> start_notice_hook(const std::string& command, const Notice& notice);

}  // namespace motley::run
