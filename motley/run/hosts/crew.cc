#include "motley/run/hosts/crew.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

namespace motley::run {
namespace {

bool has_something(int descriptor) {
  pollfd wait{descriptor, POLLIN, 0};
  return ::poll(&wait, 1, 0) > 0;
}

}  // namespace

LocalCrew::~LocalCrew() {
  signal(SIGKILL);
  for (const Member& member : members_)
    if (member.child.pid > 0) wait_for_exit(member.child.pid);
}

Result<void> LocalCrew::start(const Hand& hand) {
  SpawnOptions options;
  options.arguments = {worker_};
  options.arguments.insert(options.arguments.end(), hand.arguments.begin(), hand.arguments.end());
  // Workers end when we are gone, however we end.
  options.arguments.insert(options.arguments.end(), {"--parent", std::to_string(::getpid())});
  options.error_path = hand.log;
  options.mask = mask_;
  MOTLEY_ASSIGN(Child child, spawn(options));
  members_.push_back({hand.id, std::move(child)});
  return {};
}

void LocalCrew::add_waits(std::vector<pollfd>& waits) const {
  for (const Member& member : members_)
    if (member.child.output.is_open()) waits.push_back({member.child.output.number(), POLLIN, 0});
}

void LocalCrew::listen(std::vector<Heard>& heard) {
  for (Member& member : members_) {
    Child& child = member.child;
    while (child.output.is_open() && has_something(child.output.number()))
      read_lines(child, [&](const std::string& line) {
        heard.push_back({member.id, Heard::What::kLine, line, 0});
      });
    int status = 0;
    // Its last lines first: an exit is judged when its output has ended.
    if (child.pid < 0 || child.output.is_open() || ::waitpid(child.pid, &status, WNOHANG) <= 0)
      continue;
    child.pid = -1;
    heard.push_back({member.id, Heard::What::kExit, "", status});
  }
}

void LocalCrew::signal(int signal) {
  for (const Member& member : members_)
    if (member.child.pid > 0) ::kill(member.child.pid, signal);
}

}  // namespace motley::run
