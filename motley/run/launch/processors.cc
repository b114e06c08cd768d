#include "motley/run/launch/processors.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace motley::run {

std::vector<int> usable_processors() {
  cpu_set_t set;
  std::vector<int> processors;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return processors;
  for (int i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &set)) processors.push_back(i);
  return processors;
}

std::vector<int> place_on_processors(const std::vector<double>& speeds,
                                     const std::vector<int>& processors) {
  constexpr double kRounding = 1e-9;
  if (processors.empty()) return {};
  std::vector<std::size_t> order(speeds.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return speeds[a] > speeds[b]; });
  std::vector<double> load(processors.size(), 0.0);
  std::vector<int> places(speeds.size());
  for (const std::size_t device : order) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += speeds[device];
    if (*least > 1.0 + kRounding) return {};
    places[device] = processors[static_cast<std::size_t>(least - load.begin())];
  }
  return places;
}

namespace {

/// The process's processors before it was pinned to one.
cpu_set_t& processors_before() {
  static cpu_set_t set;
  return set;
}
bool keeps_to_one = false;

}  // namespace

void use_all_processors() {
  if (keeps_to_one) (void)::sched_setaffinity(0, sizeof(cpu_set_t), &processors_before());
}

void keep_to_processor(int processor) {
  if (!keeps_to_one)
    keeps_to_one = ::sched_getaffinity(0, sizeof(cpu_set_t), &processors_before()) == 0;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  (void)::sched_setaffinity(0, sizeof set, &set);
  // struct sched_attr; C libraries before glibc 2.41 do not declare it.
  struct Attributes {
    std::uint32_t size, policy;
    std::uint64_t flags;
    std::int32_t nice;
    std::uint32_t priority;
    std::uint64_t runtime_ns, deadline_ns, period_ns;
  };
  Attributes attributes{};
  attributes.size = sizeof attributes;
  attributes.policy = SCHED_OTHER;
  attributes.nice = ::getpriority(PRIO_PROCESS, 0);
  attributes.runtime_ns = 100'000;  // time slice, supported since Linux 6.12
  (void)::syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace motley::run
