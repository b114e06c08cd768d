#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "motley/base/units.h"
#include "motley/elastic/lifetimes.h"
#include "motley/elastic/renting_job.h"
#include "motley/elastic/set_speeds.h"
#include "motley/elastic/spot_gaps.h"
#include "motley/elastic/time_left.h"
#include "motley/policy/observation.h"

namespace motley::elastic {

struct MachineState {
  enum class Place { kAbsent, kAsked, kThere };
  static constexpr std::array kPlaces = {"absent", "asked", "there"};

  std::string name;
  Place place = Place::kAbsent;
  Seconds since = {};                 ///< since it is in this place
  std::optional<Seconds> until = {};  ///< departure, if announced
  int lives = 0;                      ///< arrivals so far, for the name of its life
  bool is_kept = false;               ///< it cannot be given back

  bool is_there() const { return place == Place::kThere; }
  /// Tells whether it is present or coming, and is not leaving.
  bool stays() const { return place != Place::kAbsent && !until; }
  static void fields(auto& it, auto& field) {
    field("name", it.name)
        .word("place", it.place, kPlaces)("since", it.since)("until", it.until)("lives", it.lives)(
            "kept", it.is_kept);
  }
};

struct OfferState {
  std::string name;
  double price = 0;  ///< per hour; the last one while unavailable
  bool is_there = true;
  std::optional<Seconds> again = {};  ///< earliest next request
  SpotGaps gaps = {};
  static void fields(auto& it, auto& field) {
    field("name", it.name)("price", it.price)("is_there", it.is_there)("again", it.again)("gaps",
                                                                                          it.gaps);
  }
};

/// Machines and offers of an elastic job at one time, what it has paid, and what it has learned.
struct JobStanding {
  using Place = MachineState::Place;

  RentingJob job;
  Lifetimes lifetimes;
  std::vector<MachineState> machines;
  std::vector<OfferState> offers;
  std::vector<MeasuredSet> measured = {};
  Seconds now = {};
  std::int64_t done = 0;   ///< steps
  double paid = 0;         ///< from the request of a machine until it is gone
  std::size_t target = 0;  ///< initial number of machines
  int settling = 2;        ///< steps that are not measured, since the machines changed

  JobStanding(RentingJob job, Lifetimes lifetimes);

  /// Advances the clock and pays for machines that are present or starting.
  void advance(Seconds at);
  void come(std::size_t machine);
  void lose(std::size_t machine, const policy::LossSeen& seen);
  void ask(std::size_t machine) { put(machine, Place::kAsked); }
  void measure(Seconds took);
  /// Advances to a new price or the end of an offer, and says it; none: that is nothing new.
  std::optional<std::string> reprice(std::size_t offer, double per_hour, Seconds at);
  /// Ends pauses of offers that are over. Gives up on machines that have not come within twice
  /// their start, and pauses their offers for `pause`; returns their names.
  std::vector<std::string> give_up_waiting(Seconds pause);

  std::optional<std::size_t> find_machine(const std::string& device) const;
  /// Null: an own machine.
  const Offer* offer_of(std::size_t machine) const;
  double price_of(std::size_t machine) const;  ///< per hour
  Machines there() const;
  /// Machines that stay are fewer by so many than at first.
  std::size_t missing() const;
  /// Returns steps per second; 0: they cannot train.
  double speed_with(const Machines& set) const { return find_speed(set, measured, job.speed); }
  /// Tells whether an offer is available, in the region of the present machines.
  bool is_offered(std::size_t offer) const;
  /// Returns at most so many absent machines that may be requested.
  std::vector<std::size_t> free_of(std::size_t offer, std::size_t most) const;
  double steps_left() const { return static_cast<double>(job.steps - done); }
  /// Predicts time and cost if these are requested too and no other is lost; none: unknown.
  std::optional<LeftToDo> left_with(const std::vector<std::size_t>& asked) const;

 private:
  void put(std::size_t machine, Place place);
  std::string life_of(std::size_t machine) const;
};

}  // namespace motley::elastic
