#pragma once

#include <optional>

#include "motley/synth/operators/rank_operator.h"

namespace motley::synth {

/// Ids (of rows of a table, of classes) as rows of the own part, and which are not in it.
struct LocalIds {
  BufferId rows, outside;
};

/// `spare` stands for what is outside; `ignored`: an id that is in no part.
LocalIds find_local_ids(RankOperator& op, BufferId ids, Range own, std::int64_t spare,
                        std::optional<std::int64_t> ignored = std::nullopt);

}  // namespace motley::synth
