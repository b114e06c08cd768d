#pragma once

#include <map>
#include <string>
#include <tuple>

#include "peers/steps/efficiency_fit.h"

namespace motley::bench {

/// An operator of a transformer block on one kind: its work by the kind's figures, and its times.
struct BlockOperator {
  /// Both with the forward's work: the set's backward of a matrix product takes 0.95 of its
  /// forward, so it holds one of the two products.
  peers::KindSample forward, backward;
};
/// The operators of a block on one kind, all of them measured.
struct Block {
  std::map<std::string, BlockOperator> operators;  ///< by name
  peers::KindSample forward() const;               ///< their sum
};
/// Model, micro-batch, whether in f16 (else f32).
using BlockKey = std::tuple<std::string, double, bool>;
using KindBlocks = std::map<std::string, std::map<BlockKey, Block>>;  // by kind

/// The blocks of Sailor's operator times (six GPU kinds, three models) that are complete.
Result<KindBlocks> read_kind_blocks(const std::string& data);

}  // namespace motley::bench
