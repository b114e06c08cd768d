#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "motley/control/training/adapting.h"
#include "motley/control/training/machine_renting.h"
#include "motley/control/training/monitor.h"
#include "motley/control/training/rented_machines.h"
#include "motley/run/notices/notice.h"

namespace motley::control {

/// Writes another coordinator's renting state (Adapting::leave_also, key "renting") into the run
/// directory. Returns the path of the market.
Result<std::string> open_left_market(const Json& left, const RunDirectory& directory);

/// Rents machines for a running training (machine_renting.h): runs the commands that request and
/// return machines, follows prices, and writes the state that a later call continues from.
class Renting : public Listener, private MachineMarket {
 public:
  struct Place {
    const RunDirectory& directory;
    const Clock& clock;
    Adapting& adapting;
    Listener& listener;
    std::string control_socket;  ///< where machines may join: HOST:PORT
  };
  /// Continues from the run directory's renting.json, or begins. Usage errors: `market.deadline`,
  /// it has passed; `market.budget`, it is spent; those of find_machines and of reading files.
  static Result<std::unique_ptr<Renting>> start(const RentChoices& choices, const Inputs& inputs,
                                                const run::Job& job, std::optional<Seconds> step,
                                                const Place& place);

  void note(const std::string& line) override { place_.listener.note(line); }
  Result<void> phase(Phase phase, const std::function<std::string()>& text) override {
    return place_.listener.phase(phase, text);
  }
  Wish step(const StepReport& report) override;
  void hear(const run::Notice& notice);
  /// Notes that a process is done or was asked to stop: devices that go from now on are no loss.
  void on_event(const run::WorkerEvent& event);
  /// Updates present machines and current prices. kStop: the budget is spent.
  Wish look();
  RentedRun end();
  ~Renting() override;
  Renting(const Renting&) = delete;
  Renting& operator=(const Renting&) = delete;

 private:
  Renting(RentChoices choices, elastic::JobRenting policy, const Place& place, Seconds began);
  void ask(const std::vector<const elastic::JobMachine*>& machines, Seconds at) override;
  void come(std::size_t, Seconds) override {}
  void go(std::size_t machine, Went went) override;
  Seconds now() const;
  Json to_json() const;
  void after_decisions();
  void start_hook(const std::string& command,
                  const std::vector<const elastic::JobMachine*>& machines);
  void see_prices();
  void write();

  RentChoices choices_;
  Place place_;
  MachineRenting rented_;
  Seconds began_;         // when the run began, by the calendar
  Seconds steady_began_;  // likewise, by the monotonic clock
  bool trains_ = false;   // from the first step, when all are there, to the end
  bool has_ended_ = false;
  std::filesystem::file_time_type changed_;
  Seconds read_, written_;
  bool is_spent_ = false;
  std::size_t decisions_ = 0;  // written so far
};

}  // namespace motley::control
