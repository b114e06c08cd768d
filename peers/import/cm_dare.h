#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "peers/steps/checkpoint_fit.h"
#include "peers/steps/roofline.h"
#include "peers/steps/server_fit.h"

namespace motley::peers {

/// Imports the CM-DARE tables (Li et al., ICDCS 2020): convolutional networks of two families
/// (ResNet, Shake-Shake) on CIFAR-10, trained with batches of 128 on one K80, P100 or V100 each, by
/// asynchronous workers and parameter servers. `folder` has speed/, cluster_size/, checkpoint/. A
/// table may end in .filtered.csv (without some models) or .csv. Errors name file and line.

struct CmDareSpeed {
  std::string model;  ///< as in the table: "Res32", "custom4", "shake48"
  std::string gpu;    ///< "K80", "P100"
  double peak_flops_per_second = 0;
  double flops_per_image = 0;  ///< forward and backward, 2 per multiply-add
  double parameters = 0;
  double tensors = 0;          ///< trainable ones; three or four per convolution
  std::int64_t channels = 0;   ///< of the first of three stages; later 2 and 4 times as many
  std::vector<double> step_s;  ///< readings
  /// Index of a session: measurements on one kind of device less than six hours apart (wall time of
  /// the raw trace): one virtual machine, or one host. -1: no trace.
  int session = -1;
};

/// Reads speed/0latency_norm_computation by model and device in the table's order, joined with the
/// start times of speed/traces. The number of tensors may be in one device's rows only. `channels`
/// comes from the largest tensor (3 x 3 x 4C x 4C numbers of 4 bytes). Without it, `channels` is
/// the multiple of 16 nearest to the mean width / 2.25: with stages of C, 2C and 4C the root mean
/// square width is 2.1 to 2.6 C.
Result<std::vector<CmDareSpeed>> read_cm_dare_speeds(const std::string& folder);

/// Converts a step of 128 images to work. Launches: tensors. Flops: padded to tiles of 32 channels,
/// the narrow side of matrix kernels, as the mean of the three stages and the three products
/// (output, input gradient, weight gradient), which have equal flops. Bytes: one pass over the
/// outputs of all convolutions, flops / (3 * 2 * 9 * width) numbers of 4 bytes with the mean width
/// sqrt(parameters / (3 tensors)); the fit finds the number of passes.
StepWork work_of(const CmDareSpeed& speed);

/// A checkpoint; campaign 0: the first 16, 1: the four of checkpoint/unaggregated_test.
struct CmDareCheckpoint {
  std::string model;
  CheckpointSize size;
  std::vector<double> seconds;
  int campaign = 0;
};
Result<std::vector<CmDareCheckpoint>> read_cm_dare_checkpoints(const std::string& folder);

/// Reads steps per second of 1 to 8 workers: the median of cluster_size/SET/MODEL_N.csv without the
/// first reading, a warm-up. `set`: k80, p100 (one server), p100ps2 (two servers).
Result<std::vector<SpeedPoint>> read_cm_dare_curve(const std::string& folder,
                                                   const std::string& set,
                                                   const std::string& model);

/// Returns a trace's median steps per second (Wall time, Step, Value), without the first reading.
Result<double> read_trace_speed(const std::string& path);

}  // namespace motley::peers
