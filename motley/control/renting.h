#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "motley/control/adapting.h"
#include "motley/control/market.h"
#include "motley/control/monitor.h"
#include "motley/elastic/job_renting.h"
#include "motley/run/notices/notice.h"

namespace motley::control {

/// How an elastic training rents machines while it runs.
struct RentChoices {
  std::string market;  ///< file, which is read again when it has changed
  Seconds deadline;    ///< since the run began first
  std::optional<double> budget;
  std::string hook = "";  ///< a command that asks for machines (docs/formats/market.md)
};

/// The nodes of a cluster as machines of a market: those that say a zone are rented, by the offer
/// of their kind, zone and spot; the others are one's own. `absent`: devices that are not there at
/// the beginning. Usage errors: `market.node`, a node that no offer fits, or no node with a zone;
/// `market.offer`, an offer of a kind that no device is of; `market.server`, `market.absent`,
/// a machine of which only some devices are absent.
Result<std::vector<elastic::JobMachine>> find_machines(const elastic::Market& market,
                                                       const cluster::Cluster& cluster,
                                                       const std::vector<DeviceId>& ids,
                                                       const std::vector<std::string>& absent);

/// Steps between two checkpoints as the hazard of these machines says (elastic/mix.h); none: one's
/// own are among them, or all stay: nothing is lost.
std::optional<std::int64_t> steps_between_checkpoints(
    const MarketQuestion& question, const std::vector<elastic::JobMachine>& machines, Seconds step,
    Bytes state);

/// Rents for a training while it runs: tells elastic::JobRenting what happens, keeps what it
/// decides among the run's decisions, and starts a command that asks for machines. Hears what the
/// training's listener hears, and passes it on.
class Renting : public Listener {
 public:
  /// Where it is.
  struct Place {
    const RunDirectory& directory;
    const Clock& clock;
    Adapting& adapting;
    Listener& listener;
    std::string door;  ///< where machines may join: HOST:PORT
  };
  /// Goes on where the run directory's renting.json ends, or begins. Usage errors `market.deadline`
  /// and `market.budget`: it is past, or spent; those of find_machines and files.
  static Result<std::unique_ptr<Renting>> start(const RentChoices& choices, const Inputs& inputs,
                                                const run::Job& job, std::optional<Seconds> step,
                                                const Place& place);

  void note(const std::string& line) override { place_.listener.note(line); }
  void phase(Phase phase, const std::function<std::string()>& text) override {
    place_.listener.phase(phase, text);
  }
  Wish step(const StepReport& report) override;
  void hear(const run::Notice& notice);
  /// A process has done all, or was told to stop: who goes from now on is no loss.
  void on_event(const run::WorkerEvent& event);
  /// Sees who has gone and come, and what machines cost now. kStop: the budget is spent.
  Wish look();
  /// Writes what is to be gone on with.
  RentedRun end();

 private:
  Renting(RentChoices choices, elastic::JobRenting policy, const Place& place, Seconds began);
  Seconds now() const;
  void observe(const policy::Observation& seen);
  void carry_out(const policy::Choice& choice);
  void ask(const policy::Rent& rent);
  void see_machines();
  void see_prices();
  void write();

  RentChoices choices_;
  elastic::JobRenting policy_;
  Place place_;
  Seconds began_;         // of the run, by the calendar
  Seconds steady_began_;  // likewise, by the clock that does not go back
  bool trains_ = false;   // from the first step, when all are there, until the run ends
  bool has_ended_ = false;
  std::set<std::string> noticed_, leaving_;  // machines
  std::filesystem::file_time_type changed_;  // of the market
  Seconds read_, written_;
  std::string said_;
  bool is_spent_ = false;
  int asked_ = 0;
};

}  // namespace motley::control
