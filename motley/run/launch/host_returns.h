#pragma once

#include <future>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/run/hosts/hosts.h"
#include "motley/run/job.h"

namespace motley::run {

/// Hosts of an elastic job that were lost, or were not there at the beginning, and their way back:
/// an agent is started there and given the job's files, beside all else that goes on.
class HostReturns {
 public:
  /// Both outlive it. `hosts` may be null of a job of this machine.
  HostReturns(const Job& job, const Hosts* hosts) : job_(job), hosts_(hosts) {}

  void lose(const std::string& host) { lost_.insert(host); }
  bool is_lost(const std::string& host) const { return lost_.contains(host); }
  /// The host is to come back, as this rank is to be started there.
  void begin(const std::string& host, int rank);

  struct Return {
    std::string host;
    std::vector<int> ranks;          ///< that wait for it
    Result<Hosts::Reached> reached;  ///< or why it did not come
    std::string job;                 ///< path of the job's JSON there
  };
  /// Those that have ended since. A host that is back is not lost any more.
  std::vector<Return> take();

 private:
  struct Placed {
    Hosts::Reached reached;
    std::string job;
  };
  struct Coming {
    std::vector<int> ranks;
    std::future<Result<Placed>> placed;
  };
  const Job& job_;
  const Hosts* hosts_;
  std::set<std::string> lost_;
  std::map<std::string, Coming> coming_;
};

}  // namespace motley::run
