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

/// A pipe that children do not inherit unless they are given an end.
struct Pipe {
  Descriptor read, write;
};
Result<Pipe> make_pipe();

/// A started program. The destructor neither waits for it nor ends it.
struct Child {
  pid_t pid = -1;
  Descriptor output;  ///< what it prints
  Descriptor input;   ///< what it reads; not open: nothing
  std::string line;   ///< the unfinished last line of output
};

struct SpawnOptions {
  std::vector<std::string> arguments;  ///< the first is the program, found in PATH
  std::string error_path;              ///< where stderr goes; "": where ours goes
  sigset_t mask{};                     ///< of the child's signals
  bool takes_input = false;            ///< Child::input is the other end of its stdin
};
/// Starts a program. Runtime error `run.spawn`: it cannot be started.
Result<Child> spawn(const SpawnOptions& options);

/// Appends available output to `line`. At its end returns true and closes the descriptor.
bool read_some(Child& child);
template <typename OnLine>
void read_lines(Child& child, const OnLine& on_line) {
  const bool ended = read_some(child);
  // A pipe delivers bytes, not lines: an unfinished line is kept.
  std::size_t begin = 0;
  const std::string_view text = child.line;
  for (std::size_t end; (end = text.find('\n', begin)) != std::string_view::npos; begin = end + 1)
    on_line(std::string(text.substr(begin, end - begin)));
  child.line.erase(0, begin);
  if (ended && !child.line.empty()) on_line(std::exchange(child.line, {}));
}

/// Converts a status of waitpid to an exit code as shells do: 128 plus the signal's number.
int exit_code_of(int status);
int wait_for_exit(pid_t pid);
/// Returns "ended with exit code 1" or "was killed by signal 9 (...)".
std::string describe_exit(int status);

}  // namespace motley::run
