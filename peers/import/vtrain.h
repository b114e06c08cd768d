#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "motley/base/result.h"
#include "peers/steps/collective_curve.h"
#include "peers/steps/transformer_fit.h"

namespace motley::peers {

/// Parses GPT runs in the form of vTrain (MICRO 2024): comma-separated values with the columns `#
/// GPUs`, `global batch`, `micro batch`, `hidden size`, `attention heads`, `# layers`, `sequence
/// length`, `tensor parallelism`, `data parallelism`, `pipeline parallelism` and `iteration time
/// (ms)`, in any order. The set does not name the vocabulary; its authors' configurations have
/// GPT-2's 50,257 and recompute layers.
///
/// Errors, with file and line: base.csv for malformed tables, missing columns and numbers that are
/// not > 0; cost.vtrain where devices are not the product of the three degrees, and for a job that
/// verify_job refuses.
Result<std::vector<TransformerRun>> parse_vtrain_runs(std::string_view text,
                                                      const std::string& file);
Result<std::vector<TransformerRun>> read_vtrain_runs(const std::string& path);

/// Parses an all-reduce table: `size(B)` and `time(ns)`. Of two `time(ns)` columns the second, of
/// in-place reductions, counts, since frameworks reduce gradients in place. Errors: base.csv and
/// cost.collective-curve, with the file.
Result<CollectiveCurve> parse_vtrain_all_reduce(std::string_view text, const std::string& file);

/// Reads the tables AR_GPU<n>_1M_1024M_LUT.csv of 2 to 8 ranks in a folder; all must exist.
Result<CollectiveCurves> read_vtrain_all_reduce(const std::string& folder);

}  // namespace motley::peers
