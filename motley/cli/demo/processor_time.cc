#include "motley/cli/demo/processor_time.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <string>

#include "motley/base/text.h"
#include "motley/run/launch/processors.h"

namespace motley::cli {
namespace {

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

double own_seconds() {
  double sum = 0;
  for (const int whose : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    if (::getrusage(whose, &usage) == 0)
      sum += seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
  }
  return sum;
}

/// Files of /proc have no size, which the usual reader needs.
std::string read_stat() {
  std::ifstream file("/proc/stat");
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

std::int64_t busy_ticks(std::string_view stat, const std::vector<int>& processors) {
  // "cpu3 user nice system idle iowait irq softirq steal guest guest_nice"; user includes guests.
  constexpr std::size_t kBusy[] = {1, 2, 3, 6, 7, 8};
  std::int64_t ticks = 0;
  for (const std::string_view line : split(stat, '\n')) {
    const auto words = split(line, ' ');
    const bool counts = std::any_of(processors.begin(), processors.end(), [&](int each) {
      return words[0] == fmt::format("cpu{}", each);
    });
    if (!counts) continue;
    for (const std::size_t field : kBusy)
      if (field < words.size()) ticks += find_integer(words[field]).value_or(0);
  }
  return ticks;
}

ProcessorTime read_processor_time() {
  const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
  const auto per_second = static_cast<double>(::sysconf(_SC_CLK_TCK));
  const auto ticks = static_cast<double>(busy_ticks(read_stat(), run::usable_processors()));
  return {now.count(), ticks / per_second, own_seconds()};
}

double others_between(const ProcessorTime& begin, const ProcessorTime& end) {
  const double passed = end.passed - begin.passed;
  const double theirs = (end.busy - begin.busy) - (end.own - begin.own);
  return passed > 0 ? std::max(0.0, theirs / passed) : 0;
}

}  // namespace motley::cli
