#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/control/planning/layer_files.h"
#include "motley/search/stages/costs/stage_costs.h"

namespace motley::bench {

/// A question of the search for plans of stages.
struct StageInstance {
  std::string name;
  std::unique_ptr<const search::StageCosts> costs;
  std::int64_t batch = 0;
};

/// The layers of files on a cluster (text of a cluster file).
Result<StageInstance> make_instance(std::string name, const control::LayerFiles& files,
                                    const std::string& cluster, std::int64_t batch);

/// A row of Sailor's evaluation (facts of its planner's release): its step and planning time.
struct SailorCase {
  const char* model;
  std::int64_t batch;
  int fast, slow;        ///< A100-40, V100-16, in hosts of four
  double step_s, cpu_s;  ///< 0: not reported
  std::string name() const;
};
const std::vector<SailorCase>& sailor_cases();
control::LayerFiles sailor_files(const std::string& data, const std::string& model);
std::string sailor_cluster(int fast, int slow);

/// Zorse's published instance: the blocks of a LLaMA of 1.3 billion weights on four unlike GPUs of
/// one host.
Result<StageInstance> zorse_instance(const std::string& data);

/// 96 layers of an invented model on 2,048 devices of six kinds in four places.
Result<StageInstance> many_instance();

/// Up to eight devices: Sailor's layers on A100-40 and V100-16, and drawn chains.
Result<std::vector<StageInstance>> small_instances(const std::string& data);

/// Drawn chains of 8 to 20 layers on 12 to 60 devices of two or three kinds in hosts of four.
std::vector<StageInstance> drawn_instances();

}  // namespace motley::bench
