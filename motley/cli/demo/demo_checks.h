#pragma once

#include <string>
#include <vector>

#include "motley/base/units.h"

namespace motley::cli {

/// Repeated timings of one thing, in alternation with another: the median step of each run.
struct Timings {
  std::string thing;
  std::vector<Seconds> steps = {};
  double others = 0;  ///< processors kept busy by other processes, in the worst run

  Seconds typical() const;
  Seconds shortest() const;
  Seconds longest() const;
  /// Relative spread: 0.31 of 100 and 131 ms; 0 of fewer than two.
  double apart() const;
};

/// The timings that show whether a plan is as fast as predicted.
struct TimedInTurns {
  Timings equal, plan;
  Seconds predicted;
  double spare = 0;  ///< processors that others may use without harm

  /// The timings with the larger spread: how much the machine changed.
  const Timings& noisiest() const;
  double others() const;
  bool is_shared() const { return others() > spare; }
};

/// Returns the processors that the demo's devices, of speeds 0.8, 0.4 and 0.2, leave to others.
/// With three or more processors each device has its own (run/launch/processors.h), and the rest
/// are free; the fastest leaves 0.2 of its own. More use by others disturbs the demo.
double spare_processors(int processors);

/// The conclusion of a check from its timings.
enum class Verdict {
  kRight,
  kProfileAgain,  ///< wrong, but the profile may be of a busy machine
  kNoise,         ///< undecidable: wrong, or the machine was busy
  kWrong,
};
/// Was the plan timed again after a new profile, because timings and prediction disagreed?
enum class Profile { kFirst, kRenewed };

struct Judged {
  Verdict verdict;
  double value;
  double allowed;  ///< wrong if every timing exceeds it
};

/// Distinguishes an error of the prediction from a busy machine.
///
/// Other work lengthens a step by an unknown, changing part. Two timings of one thing, with a run
/// of another between them, sample the machine at two times, so their spread is a sample of that
/// part. The rules, in order:
/// - The plan's timings agree within `limit`, and one agrees with the prediction: right.
/// - The timings of either thing spread by more than `limit`: an error of `limit` could not be seen
///   (kNoise), because both ran in alternation.
/// - The prediction counts as off only if its nearest timing is off by more than `limit` plus the
///   spread of the plan's timings, because a further timing may differ from this one by as much.
/// - Constant load lengthens all timings alike, which they cannot show. If others keep more than
///   the spare processors busy, that may be the cause (kNoise).
/// - Otherwise the profile may be of a busy machine. It is measured again, once, and the plan is
///   timed after it. If that timing differs from the previous ones, the machine has changed
///   (kNoise, by the rule on spread). If it agrees, profile and timings saw one machine, and the
///   remaining difference is an error.
/// The value is the error of the nearest timing, relative to that timing.
/// Example: timings of 100 and 104 ms, limit 15 %: up to 15 + 4 % of 100 or 104 is right, so
/// 81 to 123.8 ms.
Judged judge_prediction(const TimedInTurns& timed, double limit, Profile profile);

/// Is the plan faster than the equal split by the factor `wanted` (> 1)? It is not if even its
/// fastest timing against the slowest of the equal split is too slow. If timings spread by more
/// than `noise`, that comparison can show only that the plan is slower than the equal split. On a
/// shared machine it shows nothing, because the fastest device lacks the time that the plan counted
/// on. The value is of typical timings.
Judged judge_speedup(const TimedInTurns& timed, double wanted, double noise);

/// Returns "the machine was busy: two timings of the equal split differ by 31 %, and others kept
/// 1.6 processors busy; WHAT cannot be checked", with the parts that apply.
std::string print_noise(const TimedInTurns& timed, double limit, const std::string& what);

}  // namespace motley::cli
