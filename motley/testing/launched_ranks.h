#pragma once

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "motley/base/file.h"
#include "motley/testing/scripted_agent.h"

namespace motley::run {

/// For tests: the other ranks of an external launcher's job as Hosts::gather finds them. They are
/// threads of this process and connect through a scripted relay.
class LaunchedRanks {
 public:
  /// `folder` is empty; its file `came` appears when a rank has spoken. `relay`: what the script
  /// does after it has published the coordinator's address.
  explicit LaunchedRanks(std::string folder, const std::string& relay = kReaches)
      : folder_(std::move(folder)) {
    std::ofstream(worker()) << "#!/bin/sh\necho \"$2\" > " << there() << ".part\nmv " << there()
                            << ".part " << there() << "\n"
                            << relay;
    std::filesystem::permissions(worker(), std::filesystem::perms::owner_all);
  }
  ~LaunchedRanks() {
    is_over_ = true;
    agents_.clear();
  }

  /// Reaches the store at once and ends with its input.
  static constexpr const char* kReaches =
      "echo '{\"event\": \"relay\", \"address\": \"127.0.0.1\"}'\ncat > /dev/null\n";

  /// Replaces motley-worker.
  std::string worker() const { return folder_ + "/relay"; }

  /// Adds a rank that connects when the coordinator listens and first says `word`, like the relay.
  ScriptedAgent& add(const std::string& word, const Json& hello,
                     ScriptedAgent::Answers answers = {}) {
    agents_.push_back(std::make_unique<ScriptedAgent>(hello, std::move(answers)));
    agents_.back()->begin([this, word] { return connect(word + "\n"); });
    return *agents_.back();
  }

 private:
  std::string there() const { return folder_ + "/there"; }

  Descriptor connect(const std::string& word) const {
    constexpr int kLookUs = 2000;
    while (!std::filesystem::exists(there()) && !is_over_) ::usleep(kLookUs);
    std::string path = read_file(there()).value_or("\n");
    path.pop_back();
    Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    const auto* coordinator = reinterpret_cast<const sockaddr*>(&address);
    if (::connect(socket.number(), coordinator, sizeof address) != 0 ||
        ::send(socket.number(), word.data(), word.size(), MSG_NOSIGNAL) < 0)
      socket.reset();
    std::ofstream(folder_ + "/came");
    return socket;
  }

  std::string folder_;
  std::atomic<bool> is_over_ = false;
  std::vector<std::unique_ptr<ScriptedAgent>> agents_;
};

}  // namespace motley::run
