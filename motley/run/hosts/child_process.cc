#include "motley/run/hosts/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

extern char** environ;

namespace motley::run {

Result<Pipe> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return runtime_error("run.spawn", fmt::format("pipe: {}", std::strerror(errno)));
  return Pipe{Descriptor(ends[0]), Descriptor(ends[1])};
}

Result<Child> spawn(const SpawnOptions& options) {
  MOTLEY_ASSIGN(Pipe output, make_pipe());
  Pipe input;
  if (options.takes_input) {
    MOTLEY_ASSIGN(input, make_pipe());
  }
  Child child;
  child.output = std::move(output.read);
  child.input = std::move(input.write);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, output.write.number(), STDOUT_FILENO);
  // The child must not read what the user types or pipes into this process.
  if (options.takes_input)
    posix_spawn_file_actions_adddup2(&actions, input.read.number(), STDIN_FILENO);
  else
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (!options.error_path.empty())
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, options.error_path.c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // Signals that this process blocks or ignores must not be inherited: a worker stops on SIGTERM.
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGTERM);
  sigaddset(&defaults, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setsigmask(&attributes, &options.mask);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);

  std::vector<char*> arguments;
  for (const std::string& argument : options.arguments)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  const int fault =
      ::posix_spawnp(&child.pid, arguments[0], &actions, &attributes, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (fault != 0)
    return runtime_error("run.spawn", fmt::format("cannot start {}: {}", options.arguments[0],
                                                  std::strerror(fault)));
  return child;
}

bool read_some(Child& child) {
  char bytes[1 << 16];
  const ssize_t count = ::read(child.output.number(), bytes, sizeof bytes);
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return false;
  if (count > 0) child.line.append(bytes, static_cast<std::size_t>(count));
  if (count <= 0) child.output.reset();
  return count <= 0;
}

int exit_code_of(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int wait_for_exit(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

std::string describe_exit(int status) {
  if (!WIFSIGNALED(status)) return fmt::format("ended with exit code {}", WEXITSTATUS(status));
  std::string text = fmt::format("was killed by signal {}", WTERMSIG(status));
  if (WTERMSIG(status) == SIGKILL) text += " (by somebody, or by the kernel for want of memory)";
  return text;
}

}  // namespace motley::run
