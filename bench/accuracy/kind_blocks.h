#pragma once

#include <map>
#include <string>
#include <tuple>

#include "peers/steps/efficiency_fit.h"

namespace motley::bench {

/// A transformer block's operator on one kind: work by the kind's figures, and times.
struct BlockOperator {
  /// Both with forward's work: backward takes 0.95 of it in the set, so it is one of two products.
  peers::KindSample forward, backward;
};
/// A block's operators on one kind, all measured.
struct Block {
  std::map<std::string, BlockOperator> operators;  ///< by name
  peers::KindSample forward() const;               ///< their sum
};
/// Model, micro-batch, f16 (else f32).
using BlockKey = std::tuple<std::string, double, bool>;
using KindBlocks = std::map<std::string, std::map<BlockKey, Block>>;  // by kind

/// Reads the complete blocks of Sailor's operator times (six GPU kinds, three models).
Result<KindBlocks> read_kind_blocks(const std::string& data);

}  // namespace motley::bench
