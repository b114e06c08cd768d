#include "motley/cli/verbs/ask_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "motley/base/json.h"

namespace motley::cli {
namespace {

constexpr double kAnswer = 30;  // seconds; the job may be preparing a plan
constexpr std::chrono::milliseconds kLook{100};

Error error_of(const Json& json) {
  return {static_cast<ErrorKind>(json.value("kind", 0)), json.value("code", ""),
          json.value("message", "")};
}

Json find_device(const Json& answer, const std::string& device) {
  for (const Json& each : answer.value("devices", Json::array()))
    if (each.value("name", "") == device) return each;
  return Json::object();
}

/// The error of a device that did not join, or was sent back.
Error absence(const std::string& device, const Json& found) {
  const auto why = found.find("why");
  if (why == found.end())
    return {ErrorKind::kRuntime, "elastic.absent",
            device + " is not there; what the run prints says why"};
  const Error error = error_of(*why);
  const bool is_infeasible = error.kind == ErrorKind::kInfeasible;
  return {is_infeasible ? ErrorKind::kInfeasible : ErrorKind::kRuntime, "elastic.absent",
          device + " is not there: " + error.message};
}

}  // namespace

Result<Json> ask_run(const run::ControlSocketAddress& control_socket, const Json& question) {
  MOTLEY_ASSIGN(const Json answer, run::ask_control_socket(control_socket, question, kAnswer));
  if (!answer.contains("error")) return answer;
  return tl::make_unexpected(error_of(answer["error"]));
}

Result<Seen> wait_for_state(const run::ControlSocketAddress& control_socket,
                            const std::string& device, double seconds,
                            const std::vector<std::string>& wanted) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  for (;;) {
    MOTLEY_ASSIGN(const Json answer, ask_run(control_socket, {{"do", "state"}}));
    const Json found = find_device(answer, device);
    const std::string state = found.value("state", "");
    if (std::find(wanted.begin(), wanted.end(), state) != wanted.end()) {
      const auto why = found.find("why");
      return Seen{answer.value("step", std::int64_t{0}), state,
                  why == found.end() ? "" : error_of(*why).message};
    }
    if (state == "absent") return tl::make_unexpected(absence(device, found));
    if (std::chrono::steady_clock::now() > limit)
      return runtime_error("run.timeout",
                           fmt::format("{} is still {} after {:g} s", device, state, seconds));
    std::this_thread::sleep_for(kLook);
  }
}

}  // namespace motley::cli
