#include "motley/run/hosts/relay_process.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include "motley/base/json.h"
#include "motley/run/hosts/elapsed.h"

namespace motley::run {
namespace {

constexpr int kLinePollMs = 100;
constexpr double kReaching = 320;  // seconds; the relay's own timeout is shorter

}  // namespace

Result<std::string> read_one_line(int descriptor, double patience) {
  const auto begin = Clock::now();
  std::string line;
  while (seconds_since(begin) < patience) {
    pollfd wait{descriptor, POLLIN, 0};
    if (::poll(&wait, 1, kLinePollMs) <= 0) continue;
    char byte = 0;
    if (::read(descriptor, &byte, 1) <= 0) return runtime_error("run.pipe", "it has ended");
    if (byte == '\n') return line;
    line += byte;
  }
  return runtime_error("run.timeout", fmt::format("no answer within {:.0f} s", patience));
}

Result<RelayProcess> start_relay(const std::string& worker, const std::string& socket) {
  SpawnOptions options;
  options.arguments = {worker, "relay"};
  if (!socket.empty()) options.arguments.push_back(socket);
  options.arguments.insert(options.arguments.end(), {"--parent", std::to_string(::getpid())});
  options.takes_input = true;
  sigemptyset(&options.mask);
  RelayProcess relay;
  MOTLEY_ASSIGN(relay.child, spawn(options));
  const auto line = read_one_line(relay.child.output.number(), kReaching);
  const auto event = line ? parse_json(*line, "relay") : tl::make_unexpected(line.error());
  if (event && event->value("event", "") == "relay") {
    relay.address = event->value("address", "");
    return relay;
  }
  ::kill(relay.child.pid, SIGKILL);
  const int status = wait_for_exit(relay.child.pid);
  if (event && event->contains("message"))
    return runtime_error(event->value("code", "run.relay"), event->value("message", ""));
  return runtime_error("run.worker-lost",
                       fmt::format("{} relay {}: {}", worker, describe_exit(status),
                                   line ? *line : line.error().message));
}

}  // namespace motley::run
