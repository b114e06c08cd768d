#include "motley/cli/ask_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "motley/base/json.h"

namespace motley::cli {
namespace {

constexpr double kAnswer = 30;  // seconds: it may just be preparing a plan
constexpr std::chrono::milliseconds kLook{100};

std::string state_of(const Json& answer, const std::string& device) {
  for (const Json& each : answer.value("devices", Json::array()))
    if (each.value("name", "") == device) return each.value("state", "");
  return "";
}

}  // namespace

Result<Json> ask_run(const run::DoorAddress& door, const Json& question) {
  MOTLEY_ASSIGN(const Json answer, run::ask_door(door, question, kAnswer));
  if (!answer.contains("error")) return answer;
  const Json& error = answer["error"];
  return tl::make_unexpected(Error{static_cast<ErrorKind>(error.value("kind", 0)),
                                   error.value("code", ""), error.value("message", "")});
}

Result<std::int64_t> wait_for_state(const run::DoorAddress& door, const std::string& device,
                                    double seconds, const std::vector<std::string>& wanted) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  for (;;) {
    MOTLEY_ASSIGN(const Json answer, ask_run(door, {{"do", "state"}}));
    const std::string state = state_of(answer, device);
    if (std::find(wanted.begin(), wanted.end(), state) != wanted.end())
      return answer.value("step", std::int64_t{0});
    if (state == "absent")
      return runtime_error("elastic.absent",
                           device + " is not there; what the run prints says why");
    if (std::chrono::steady_clock::now() > limit)
      return runtime_error("run.timeout",
                           fmt::format("{} is still {} after {:g} s", device, state, seconds));
    std::this_thread::sleep_for(kLook);
  }
}

}  // namespace motley::cli
