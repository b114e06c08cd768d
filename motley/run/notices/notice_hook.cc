#include "motley/run/notices/notice_hook.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "motley/base/quiet_thread.h"
#include "motley/base/text.h"

extern char** environ;

namespace motley::run {
namespace {

constexpr std::string_view kVariables = "MOTLEY_NOTICE_";

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

std::vector<std::string> hook_variables(const Notice& notice) {
  return {fmt::format("{}SOURCE={}", kVariables, notice.source),
          fmt::format("{}WHAT={}", kVariables, notice.what),
          fmt::format("{}LEFT_S={:.1f}", kVariables, notice.left.value),
          fmt::format("{}CERTAIN={}", kVariables, notice.is_certain ? 1 : 0),
          fmt::format("{}DEVICES={}", kVariables, join(notice.devices, " "))};
}

Result<void> start_notice_hook(const std::string& command, const Notice& notice) {
  return start_hook(command, hook_variables(notice), kVariables);
}

Result<void> start_hook(const std::string& command, std::vector<std::string> variables,
                        std::string_view prefix) {
  std::vector<std::string> words = {"/bin/sh", "-c", command};
  for (char** each = environ; *each != nullptr; ++each)
    if (!std::string_view(*each).starts_with(prefix)) variables.emplace_back(*each);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // The hook inherits no blocked or ignored signals, and gets none of this terminal or group.
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
  pid_t pid = -1;
  const int fault = ::posix_spawn(&pid, words[0].c_str(), &actions, &attributes,
                                  pointers_to(words).data(), pointers_to(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (fault != 0)
    return runtime_error("run.notice-hook",
                         fmt::format("cannot start '{}': {}", command, std::strerror(fault)));
  // Reaps the hook, which would otherwise stay a zombie until this process ends.
  start_quiet_thread([pid] {
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
  }).detach();
  return {};
}

}  // namespace motley::run
