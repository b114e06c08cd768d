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

/// Brings back hosts of an elastic job that were lost or absent at first: starts an agent there and
/// sends it the job's files, without delaying anything else.
class HostReturns {
 public:
  /// Both outlive the object. `hosts` may be null for a local job.
  HostReturns(const Job& job, const Hosts* hosts) : job_(job), hosts_(hosts) {}

  void lose(const std::string& host) { lost_.insert(host); }
  bool is_lost(const std::string& host) const { return lost_.contains(host); }
  /// Begins to bring the host back, so that this rank can be started there.
  void begin(const std::string& host, int rank);

  struct Return {
    std::string host;
    std::vector<int> ranks;          ///< waiting for it
    Result<Hosts::Reached> reached;  ///< or why it did not come
    std::string job;                 ///< path of the job's JSON there
  };
  /// Returns the attempts that have ended. A host that is back is no longer lost.
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
