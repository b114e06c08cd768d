#pragma once

#include <string>
#include <vector>

#include "motley/base/units.h"

namespace motley::cli {

/// A thing that was timed several times, in turns with others: the median step of each of its runs.
struct Timings {
  std::string thing;  ///< "the plan"
  std::vector<Seconds> steps = {};
  double others = 0;  ///< processors that other processes kept busy beside it, in the worst run

  Seconds typical() const;  ///< the median
  Seconds shortest() const;
  Seconds longest() const;
  /// How far they are apart, relative: 0.31 of 100 and 131 ms; 0 of fewer than two.
  double apart() const;
};

/// All that says of a plan whether it is as quick as was said.
struct TimedInTurns {
  Timings equal, plan;
  Seconds predicted;  ///< of the plan
  double spare = 0;   ///< processors that others may keep busy without being in the way

  /// The thing whose timings are further apart: how much the machine itself changed.
  const Timings& noisiest() const;
  double others() const;
  bool is_shared() const { return others() > spare; }
};

/// Of so many processors those that the demo's devices, of speeds 0.8, 0.4 and 0.2, leave to
/// others. On three or more each has its own (run/launch/processors.h), and the others are free; of
/// its own the fastest leaves 0.2. What goes beyond is in its way.
double spare_processors(int processors);

/// What timings say of something that was to be so.
enum class Verdict {
  kRight,
  kProfileAgain,  ///< wrong, but what the prediction rests on may be of a machine that was busy
  kNoise,         ///< it may be wrong or the machine busy: they do not tell
  kWrong,
};
/// Was the profile measured again, and the plan timed once more, after they had disagreed?
enum class Profile { kFirst, kRenewed };

struct Judged {
  Verdict verdict;
  double value;    ///< what was measured
  double allowed;  ///< beyond it, on every timing, it is wrong
};

/// Tells an error of the prediction from a busy machine.
///
/// What else is at work makes a step longer, by a part that nobody knows and that changes. Two
/// timings of one thing with a run of another between them saw the machine at two times, so what
/// they are apart is a sample of that part:
/// - where the plan's timings agree within `limit` with each other, and one with the prediction,
/// that
///   is right;
/// - apart by more than `limit`: an error of `limit` could not be seen (kNoise), whichever of the
///   two things it is, as both ran in turns;
/// - else the prediction is off where even the timing nearest to it is off by more than `limit`
///   and, as a next one may be as far from this as they are from each other, what they are apart;
/// - work that goes on all the time lengthens both alike, which two timings cannot show: where
///   others keep more processors busy than are to spare, that is what it may be (kNoise);
/// - else both may be right and the profile of a machine that was busy: it is taken again, once,
///   and the plan timed after it. Where that timing is not as those before, the machine has changed
///   (kNoise, by the first rule); where it is, profile and timings saw one machine, and what they
///   still disagree by is an error.
/// The value is the error of the timing nearest to the prediction, relative to the timing.
/// Example: timings of 100 and 104 ms, limit 15 %: up to 15 + 4 % of 100 or 104 is right, so
/// 81 to 123.8 ms.
Judged judge_prediction(const TimedInTurns& timed, double limit, Profile profile);

/// Is the plan as much quicker than the equal split as it is to be (`wanted` times, > 1)? It is not
/// where even its fastest timing beside the slowest of the equal split is not. Timings that are
/// apart by more than `noise` show only, in that comparison, that it is slower than the equal
/// split, and those of a machine that others share nothing: what the fastest device does not get,
/// the plan gave it to do. The value is of typical timings.
Judged judge_speedup(const TimedInTurns& timed, double wanted, double noise);

/// "the machine was busy: two timings of the equal split differ by 31 %, and others kept 1.6
/// processors busy; WHAT cannot be checked", with what there is of both.
std::string print_noise(const TimedInTurns& timed, double limit, const std::string& what);

}  // namespace motley::cli
