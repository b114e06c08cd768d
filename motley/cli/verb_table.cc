#include "motley/cli/context/verb.h"

// One word per verb, in the order of `motley --help`; NAME_verb() is in the file of that name.
#define MOTLEY_VERBS(ADD) \
  ADD(probe)              \
  ADD(doctor)             \
  ADD(profile)            \
  ADD(plan)               \
  ADD(explain)            \
  ADD(simulate)           \
  ADD(run)                \
  ADD(join)               \
  ADD(leave)              \
  ADD(verify)             \
  ADD(report)             \
  ADD(serve)              \
  ADD(trace)              \
  ADD(consolidate)        \
  ADD(manifest)           \
  ADD(export_plan)        \
  ADD(demo)               \
  ADD(completion)         \
  ADD(man)                \
  ADD(agent)

namespace motley::cli {

#define MOTLEY_DECLARE(name) Verb name##_verb();
MOTLEY_VERBS(MOTLEY_DECLARE)

std::vector<Verb> all_verbs() {
#define MOTLEY_CALL(name) name##_verb(),
  return {MOTLEY_VERBS(MOTLEY_CALL)};
}

}  // namespace motley::cli
