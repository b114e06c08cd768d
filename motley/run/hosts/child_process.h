#pragma once

#include <signal.h>
#include <sys/types.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "motley/base/descriptor.h"
#include "motley/base/result.h"

namespace motley::run {

/// A pipe, closed in children unless they are given an end.
struct Pipe {
  Descriptor read, write;
};
Result<Pipe> make_pipe();

/// A program that was started. It is not waited for, nor ended, when this goes.
struct Child {
  pid_t pid = -1;
  Descriptor output;  ///< what it prints
  Descriptor input;   ///< what it reads; not open: nothing
  std::string line;   ///< of output, not ended yet
};

struct SpawnOptions {
  std::vector<std::string> arguments;  ///< the first is the program, found in PATH
  std::string error_path;              ///< where stderr goes; "" = where ours goes
  sigset_t mask{};                     ///< of the child's signals
  bool takes_input = false;            ///< Child::input is the other end of its stdin
};
/// Runtime error `run.spawn`: the program cannot be started.
Result<Child> spawn(const SpawnOptions& options);

/// Adds what is there to `line`; true, and closes the descriptor, at its end.
bool read_some(Child& child);
/// Reads what is there; calls `on_line` for each whole line.
template <typename OnLine>
void read_lines(Child& child, const OnLine& on_line) {
  const bool ended = read_some(child);
  // A pipe gives what is there, not lines: the rest waits for its end.
  std::size_t begin = 0;
  const std::string_view text = child.line;
  for (std::size_t end; (end = text.find('\n', begin)) != std::string_view::npos; begin = end + 1)
    on_line(std::string(text.substr(begin, end - begin)));
  child.line.erase(0, begin);
  if (ended && !child.line.empty()) on_line(std::exchange(child.line, {}));
}

/// Of what waitpid gave: as shells say it, 128 and the signal's number.
int exit_code_of(int status);
/// Waits until a process has ended; its status.
int wait_for_exit(pid_t pid);
/// "ended with exit code 1", "was killed by signal 9 (...)".
std::string describe_exit(int status);

}  // namespace motley::run
