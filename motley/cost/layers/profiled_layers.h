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
/// A layer's pass takes what was profiled on the kind, at the degree that its part of the rows
/// says and the samples that it has; an update the part of the layer's update that its bytes are of
/// what the device has of the layer. All else that a program does (sums of gradients, packing,
/// views) is in these times or not known, and takes none. Scratch of a backward pass: as much as
/// the layer keeps, for its gradients.
class ProfiledLayers : public TimeSource {
 public:
  /// `rows`: of the graph.
  ProfiledLayers(std::shared_ptr<const LayerProfile> profile, std::int64_t rows, std::string kind)
      : profile_(std::move(profile)), rows_(rows), kind_(std::move(kind)) {}

  /// Of every instruction, in order. Usage error (cost.layers) for a part of a layer that is of no
  /// profiled degree, or more samples than are known.
  Result<std::vector<Answer>> find(const program::DeviceProgram& program) const;
  /// The same; empty for all where `find` fails.
  std::vector<std::optional<Answer>> times(const program::DeviceProgram& program) const override;

 private:
  std::shared_ptr<const LayerProfile> profile_;
  std::int64_t rows_;
  std::string kind_;
};

}  // namespace motley::cost
