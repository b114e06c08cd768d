#pragma once

#include <string>
#include <variant>

#include "motley/job/order.h"

namespace motley::job {

/// Prints "halt 1", "add 3", "start 3", "kill 0", "follow 2", "change 4".
inline std::string order_word(const Order& order) {
  struct Word {
    std::string operator()(const run::Change& change) const {
      return "change " + std::to_string(change.number);
    }
    std::string operator()(const Halt& halt) const { return "halt " + std::to_string(halt.number); }
    std::string operator()(const job::AddDevice& add) const {
      return "add " + std::to_string(add.process);
    }
    std::string operator()(const StartProcess& start) const {
      return "start " + std::to_string(start.process);
    }
    std::string operator()(const KillProcess& kill) const {
      return "kill " + std::to_string(kill.process);
    }
    std::string operator()(const Follow& follow) const {
      return "follow " + std::to_string(follow.process);
    }
    std::string operator()(const CountEvery& count) const {
      return "count " + std::to_string(count.every);
    }
    std::string operator()(const Leave&) const { return "leave"; }
  };
  return std::visit(Word(), order);
}

}  // namespace motley::job
