#include "motley/run/launch/process_life.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <optional>
#include <sstream>

namespace motley::run {
namespace {

/// Returns what follows a process's name in its stat file: state, parent, ... The name is in
/// brackets and may contain any character, even brackets and blanks.
std::string after_name(std::int64_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(file, text);
  const std::size_t name_end = text.rfind(')');
  return name_end == std::string::npos || name_end + 2 > text.size() ? ""
                                                                     : text.substr(name_end + 2);
}

/// Returns when the process started, in seconds since 1970; none: unknown.
std::optional<double> begin_of(std::int64_t pid) {
  constexpr int kBegin = 19;  // fields between the name and the start time; the first is the state
  std::istringstream fields(after_name(pid));
  std::string field;
  for (int i = 0; i < kBegin; ++i) fields >> field;
  double ticks = 0, boot = 0;
  if (!(fields >> ticks)) return std::nullopt;
  std::ifstream machine("/proc/stat");
  while (machine >> field)
    if (field == "btime" && machine >> boot)
      return boot + ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
  return std::nullopt;
}

}  // namespace

bool is_alive(std::int64_t pid) {
  if (pid <= 0 || (::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH)) return false;
  const std::string fields = after_name(pid);
  const char state = fields.empty() ? '?' : fields.front();
  return state != 'Z' && state != 'X';
}

bool is_writer_alive(std::int64_t pid, const std::string& path) {
  if (!is_alive(pid)) return false;
  constexpr double kRounding = 2;  // seconds: the machine's boot time is known to the second
  struct stat written {};
  const std::optional<double> begin = begin_of(pid);
  return !begin || ::stat(path.c_str(), &written) != 0 ||
         *begin < static_cast<double>(written.st_mtime) + kRounding;
}

}  // namespace motley::run
