#pragma once

#include <string>
#include <vector>

#include "motley/cost/layers/layer_profile.h"

namespace motley::cost {

/// A file of a profile in the form of Metis (Um et al., ATC 2024). Its name states what it
/// measured: "DeviceType.A100_tp2_bs4.json" is kind A100, tensor parallelism 2, micro-batch 4.
struct MetisFile {
  std::string name;  ///< may be a path
  std::string text;
};

/// Parses the files of a model, in any order, into one profile. Reads of each file
/// - model: model_name, num_layers, parameters.parameters_per_layer_bytes and, optionally,
///   parameters.activation_parameters_bytes (a layer's output for the micro-batch; without it
///   `output` stays 0 and only plans of one stage can be priced);
/// - execution_time: layer_compute_total_ms (forward and backward) and optimizer_time_ms;
/// - execution_memory: layer_memory_total_mb (of 2^20 bytes; state and activations).
///
/// The form states no more, so this is assumed: the forward pass is one third of the sum and the
/// backward pass two, as they multiply once and twice; the optimizer's time is divided by parameter
/// bytes; state and activations are separated by the growth of a layer's memory from the smallest
/// to the largest micro-batch of its degree or, with a single micro-batch, by a state of four times
/// the parameters; `weights` assumes 4 bytes each, the largest size they have.
///
/// Usage error "NAME: ..." (import.metis) for another file name or form, files that disagree about
/// model or layers, and two files of the same measurement. verify_layer_profile checks the numbers.
Result<LayerProfile> parse_metis_profile(const std::vector<MetisFile>& files);

}  // namespace motley::cost
