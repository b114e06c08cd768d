#include "motley/control/clock.h"

#include <chrono>

namespace motley::control {
namespace {

template <typename Source>
Seconds now() {
  return Seconds(std::chrono::duration<double>(Source::now().time_since_epoch()).count());
}

}  // namespace

Seconds SystemClock::steady() const { return now<std::chrono::steady_clock>(); }
Seconds SystemClock::calendar() const { return now<std::chrono::system_clock>(); }

}  // namespace motley::control
