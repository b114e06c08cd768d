#pragma once

#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/cost/trust/interval.h"

namespace motley::bench {

struct Case {
  cost::PredictionInterval predicted;
  double measured = 0;  ///< > 0
};

/// A row of the accuracy table.
struct Row {
  std::string set;        ///< "vtrain: 10 % of the rows"
  std::string metric;     ///< "time", "memory", ...
  std::string protocol;   ///< what was fitted to what, and what was predicted
  std::string published;  ///< others' error on the same cases, with its kind; "" = none
  double to_reach = 0;    ///< mean absolute relative error
  std::vector<Case> cases;
};

/// Return the rows of a data set in `data` (the folder of MOTLEY_DATA). Errors name missing files.
using Rows = Result<std::vector<Row>>;
Rows vtrain_rows(const std::string& data);
Rows sailor_rows(const std::string& data);
Rows cm_dare_rows(const std::string& data);
Rows transient_rows(const std::string& data);
Rows heterog_rows(const std::string& data);
Rows kind_rows(const std::string& data);
Rows carried_rows(const std::string& data);
Rows collective_rows(const std::string& data);
/// Returns the rows that bench/own_runs.py wrote.
Rows own_rows(const std::string& path);

}  // namespace motley::bench
