#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "motley/cost/layers/layer_profile.h"
#include "motley/cost/operators/time_source.h"

namespace motley::cost {

/// Times of programs of a profile's layers (layer_graph.h) on one kind of device.
///
/// A layer's pass takes the profiled time for the kind, its samples, and the degree that its part
/// of the rows gives. An update takes a part of the layer's update by its bytes among the device's
/// bytes of the layer. Everything else (sums of gradients, packing, views) is included or unknown,
/// and takes none. A backward pass needs as much scratch as the layer keeps, for its gradients.
class ProfiledLayers : public TimeSource {
 public:
  /// `rows`: of the graph (LayerGraph).
  ProfiledLayers(std::shared_ptr<const LayerProfile> profile, std::int64_t rows, std::string kind)
      : profile_(std::move(profile)), rows_(rows), kind_(std::move(kind)) {}

  /// Returns the answers of all instructions, in order. Usage error (cost.layers) for a part of a
  /// layer without a profiled degree, or for too many samples.
  Result<std::vector<Answer>> find(const program::DeviceProgram& program) const;
  /// Returns these answers; all are empty if `find` fails.
  std::vector<std::optional<Answer>> times(const program::DeviceProgram& program) const override;

 private:
  std::shared_ptr<const LayerProfile> profile_;
  std::int64_t rows_;
  std::string kind_;
};

}  // namespace motley::cost
