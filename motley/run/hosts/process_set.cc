#include "motley/run/hosts/process_set.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace motley::run {
namespace {

bool has_something(int descriptor) {
  pollfd wait{descriptor, POLLIN, 0};
  return ::poll(&wait, 1, 0) > 0;
}

}  // namespace

std::vector<Heard> listen_to(const ProcessSets& sets, std::vector<pollfd> waits) {
  for (const auto& [agent, set] : sets) set->add_waits(waits);
  ::poll(waits.data(), waits.size(), kTickMs);
  std::vector<Heard> heard;
  for (const auto& [agent, set] : sets) set->listen(heard);
  return heard;
}

LocalProcessSet::~LocalProcessSet() {
  signal(SIGKILL);
  for (const Member& member : members_)
    if (member.child.pid > 0) wait_for_exit(member.child.pid);
}

Result<void> LocalProcessSet::start(const Hand& hand) {
  SpawnOptions options;
  options.arguments = {worker_};
  options.arguments.insert(options.arguments.end(), hand.arguments.begin(), hand.arguments.end());
  // Workers end when this process is gone, however it ends.
  options.arguments.insert(options.arguments.end(), {"--parent", std::to_string(::getpid())});
  options.error_path = hand.log;
  options.mask = mask_;
  options.takes_input = hand.takes_lines;
  MOTLEY_ASSIGN(Child child, spawn(options));
  if (child.input.is_open()) ::fcntl(child.input.number(), F_SETFL, O_NONBLOCK);
  members_.push_back({hand.id, std::move(child)});
  return {};
}

Result<void> LocalProcessSet::tell(int id, const std::string& line) {
  for (Member& member : members_) {
    if (member.id != id || !member.child.input.is_open()) continue;
    member.unsaid += line + "\n";
    write_some(member);
  }
  return {};
}

/// Writes what fits into the pipe; the rest follows when there is room.
void LocalProcessSet::write_some(Member& member) {
  while (!member.unsaid.empty()) {
    const ssize_t written =
        ::write(member.child.input.number(), member.unsaid.data(), member.unsaid.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) return;
    if (written < 0) {  // it has ended or does not read; its exit is reported later
      member.child.input.reset();
      member.unsaid.clear();
      return;
    }
    member.unsaid.erase(0, static_cast<std::size_t>(written));
  }
}

void LocalProcessSet::add_waits(std::vector<pollfd>& waits) const {
  for (const Member& member : members_)
    if (member.child.output.is_open()) waits.push_back({member.child.output.number(), POLLIN, 0});
}

void LocalProcessSet::listen(std::vector<Heard>& heard) {
  for (Member& member : members_) {
    if (!member.unsaid.empty()) write_some(member);
    Child& child = member.child;
    while (child.output.is_open() && has_something(child.output.number()))
      read_lines(child, [&](const std::string& line) {
        heard.push_back({member.id, Heard::What::kLine, line, 0});
      });
    int status = 0;
    // An exit is reported only after all output was read.
    if (child.pid < 0 || child.output.is_open() || ::waitpid(child.pid, &status, WNOHANG) <= 0)
      continue;
    child.pid = -1;
    heard.push_back({member.id, Heard::What::kExit, "", status});
  }
}

void LocalProcessSet::signal(int signal) {
  for (const Member& member : members_)
    if (member.child.pid > 0) ::kill(member.child.pid, signal);
}

void LocalProcessSet::signal_one(int id, int signal) {
  for (const Member& member : members_)
    if (member.id == id && member.child.pid > 0) ::kill(member.child.pid, signal);
}

}  // namespace motley::run
