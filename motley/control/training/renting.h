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

/// What another coordinator needs to rent on, as Renting left it (Adapting::leave_also, key
/// "renting"), put into its run directory: the path of the market.
Result<std::string> open_left_market(const Json& left, const RunDirectory& directory);

/// Rents for a training while it runs (machine_renting.h): hears what the training's listener
/// hears, and passes it on; starts commands that ask for machines and give them back, follows
/// prices, and keeps what is to be gone on with.
class Renting : public Listener, private MachineMarket {
 public:
  /// Where it is.
  struct Place {
    const RunDirectory& directory;
    const Clock& clock;
    Adapting& adapting;
    Listener& listener;
    std::string control_socket;  ///< where machines may join: HOST:PORT
  };
  /// Goes on where the run directory's renting.json ends, or begins. Usage errors `market.deadline`
  /// and `market.budget`: it is past, or spent; those of find_machines and files.
  static Result<std::unique_ptr<Renting>> start(const RentChoices& choices, const Inputs& inputs,
                                                const run::Job& job, std::optional<Seconds> step,
                                                const Place& place);

  void note(const std::string& line) override { place_.listener.note(line); }
  Result<void> phase(Phase phase, const std::function<std::string()>& text) override {
    return place_.listener.phase(phase, text);
  }
  Wish step(const StepReport& report) override;
  void hear(const run::Notice& notice);
  /// A process has done all, or was told to stop: who goes from now on is no loss.
  void on_event(const run::WorkerEvent& event);
  /// Sees who has gone and come, and what machines cost now. kStop: the budget is spent.
  Wish look();
  /// Writes what is to be gone on with.
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
  Seconds began_;         // of the run, by the calendar
  Seconds steady_began_;  // likewise, by the clock that does not go back
  bool trains_ = false;   // from the first step, when all are there, until the run ends
  bool has_ended_ = false;
  std::filesystem::file_time_type changed_;  // of the market
  Seconds read_, written_;
  bool is_spent_ = false;
  std::size_t decisions_ = 0;  // that were written
};

}  // namespace motley::control
