#include "motley/run/notices/waiting.h"

#include <poll.h>

#include <array>
#include <cerrno>

namespace motley::run {

Woke wait_on(int descriptor, short events, const Deadline& deadline, int wake) {
  while (true) {
    // poll(2) ignores negative descriptors.
    std::array<pollfd, 2> waits = {pollfd{wake, POLLIN, 0}, pollfd{descriptor, events, 0}};
    const int count = ::poll(waits.data(), waits.size(), deadline.poll_ms());
    if (count < 0 && errno != EINTR) return Woke::kLate;
    if (count > 0) return waits[0].revents != 0 ? Woke::kTold : Woke::kReady;
    if (deadline.has_passed()) return Woke::kLate;
  }
}

}  // namespace motley::run
