#pragma once

#include <string>

#include "motley/control/workers.h"
#include "motley/run/hosts/hosts.h"
#include "motley/run/hosts/way_in.h"

namespace motley::control {

/// Workers that are motley-worker processes (run/launch/launcher.h), here, under other machines'
/// agents (by ssh on demand), or as an external launcher's ranks.
class LocalWorkers : public Workers {
 public:
  /// `worker`, `program`: paths of motley-worker and motley. Starts and checks nothing.
  explicit LocalWorkers(std::string worker, const std::string& program = "",
                        std::string version = "");
  LocalWorkers(const LocalWorkers&) = delete;
  LocalWorkers& operator=(const LocalWorkers&) = delete;

  /// Errors: worker.missing; worker.version, it was built for another PyTorch.
  Result<std::string> torch_version() const override;
  Result<std::vector<std::vector<run::OpTime>>> time_programs(
      const std::vector<TimingTask>& tasks) override;
  Result<run::MeasuredGroup> time_exchanges(const run::Job& job) override;
  run::JobOutcome train(const run::Job& job, const OnEvent& on_event, const Orders& orders,
                        const OnLoss& on_loss) override;
  Result<run::TakeoverState> take_over(const std::string& memory_file) override;
  Result<std::string> bring_left_checkpoint(const std::string& run_dir) override;
  Result<FoundHosts> find_hosts(const std::vector<std::string>& hosts, const Tell& tell) override;
  Result<std::map<std::string, Seconds>> clocks_ahead(const std::set<std::string>& hosts) override;
  Result<void> gather_held(const std::string& checkpoint) override;
  Result<void> reach_by(const std::string& launcher) override;
  Result<void> gather(const run::RankPlace& place) override;
  std::vector<std::string> launched_hosts() const override;
  void end(int code) override;

 private:
  Result<std::vector<run::Seat>> find_seats(const std::string& path, run::Job& job);

  std::string worker_;
  run::WayIn way_in_ = run::WayIn::kSsh;
  run::Hosts hosts_;
  std::optional<run::TakeoverState> inherited_;  // of another coordinator; else this is the first
};

}  // namespace motley::control
