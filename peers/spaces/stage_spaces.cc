#include "peers/spaces/stage_spaces.h"

#include <fmt/format.h>

#include <algorithm>

#include "motley/base/check.h"
#include "peers/spaces/restricted_search.h"

namespace motley::peers {

const StageSpaceName& stage_space_name(StageSpace space) {
  for (const StageSpaceName& each : kStageSpaces)
    if (each.space == space) return each;
  MOTLEY_CHECK(false);
}

std::optional<StageSpace> find_stage_space(std::string_view planner) {
  for (const StageSpaceName& each : kStageSpaces)
    if (each.planner == planner) return each.space;
  return std::nullopt;
}

Result<search::StageOutcome> find_restricted(StageSpace space,
                                             const search::StageQuestion& question) {
  if (question.global_batch < 1)
    return usage_error("search.stages", fmt::format("a batch of {} samples, wanted 1 or more",
                                                    question.global_batch));
  RestrictedSearch search(question);
  switch (space) {
    case StageSpace::kEqual:
      search_equal(search);
      break;
    case StageSpace::kUniform:
      search_uniform(search);
      break;
    case StageSpace::kAmp:
      search_amp(search);
      break;
    case StageSpace::kSailor:
      search_sailor(search);
      break;
    case StageSpace::kHarp:
      search_harp(search);
      break;
    case StageSpace::kZorse:
      search_zorse(search);
      break;
  }
  return search.finish(space);
}

}  // namespace motley::peers
