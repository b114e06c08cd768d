#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "motley/run/hosts/host_link.h"
#include "motley/run/hosts/process_set.h"
#include "motley/run/hosts/status.h"

namespace motley::run {

/// A process set on another machine, controlled through its agent. Copies the processes' stderr
/// into local logs and their status into the status files of a local run directory.
class RemoteProcessSet : public ProcessSet {
 public:
  /// `run_dir`: local; "": none. The link outlives the object.
  RemoteProcessSet(HostLink& link, std::string run_dir)
      : link_(link), run_dir_(std::move(run_dir)) {}
  ~RemoteProcessSet() override;
  RemoteProcessSet(const RemoteProcessSet&) = delete;
  RemoteProcessSet& operator=(const RemoteProcessSet&) = delete;
  Result<void> start(const Hand& hand) override;
  void adopt(const Hand& hand, int number) override;
  void add_waits(std::vector<pollfd>& waits) const override;
  void listen(std::vector<Heard>& heard) override;
  Result<void> tell(int id, const std::string& line) override;
  void signal(int signal) override;
  void signal_one(int id, int signal) override;
  void forget(int id) override;

 private:
  void take(const Frame& frame, std::vector<Heard>& heard);
  void take_status(int rank, const Frame& frame);
  void lose_all(const std::string& why, std::vector<Heard>& heard);

  HostLink& link_;
  std::string run_dir_;
  std::map<int, Hand> hands_;  // running, by the agent's number
  std::map<int, StatusFile> statuses_;
};

}  // namespace motley::run
