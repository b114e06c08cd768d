#pragma once

#include <optional>

#include "motley/synth/operators/rank_operator.h"

namespace motley::synth {

/// Ids (of table rows, of classes) as rows of the own part, and a mask of those outside it.
struct LocalIds {
  BufferId rows, outside;
};

/// `spare` replaces ids outside the own part; `ignored`: an id that is in no part.
LocalIds find_local_ids(RankOperator& op, BufferId ids, Range own, std::int64_t spare,
                        std::optional<std::int64_t> ignored = std::nullopt);

}  // namespace motley::synth
