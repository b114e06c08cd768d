#include "motley/run/launch/host_returns.h"

#include <chrono>
#include <utility>

#include "motley/run/launch/remote_job.h"

namespace motley::run {

void HostReturns::begin(const std::string& host, int rank) {
  Coming& coming = coming_[host];
  coming.ranks.push_back(rank);
  if (coming.placed.valid()) return;
  // A copy: the job may gain devices meanwhile.
  coming.placed = std::async(std::launch::async, [this, host, job = job_]() -> Result<Placed> {
    Placed placed;
    MOTLEY_ASSIGN(placed.reached, hosts_->start_agent(host));
    MOTLEY_ASSIGN(placed.job, place_again(*hosts_, host, placed.reached, job));
    return placed;
  });
}

std::vector<HostReturns::Return> HostReturns::take() {
  std::vector<Return> all;
  for (auto each = coming_.begin(); each != coming_.end();) {
    auto& [host, coming] = *each;
    if (coming.placed.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
      ++each;
      continue;
    }
    Result<Placed> placed = coming.placed.get();
    Return made{host, std::move(coming.ranks), {}, ""};
    if (placed) {
      made.job = placed->job;
      made.reached = std::move(placed->reached);
      lost_.erase(host);
    } else {
      made.reached = tl::make_unexpected(placed.error());
    }
    all.push_back(std::move(made));
    each = coming_.erase(each);
  }
  return all;
}

}  // namespace motley::run
