#pragma once

#include <string>
#include <vector>

#include "motley/cost/layers/layer_profile.h"

namespace motley::cost {

/// A file of a profile in the form of Metis (Um et al., ATC 2024), named after what it measured:
/// "DeviceType.A100_tp2_bs4.json" is kind A100, tensor parallelism 2, micro-batch 4.
struct MetisFile {
  std::string name;  ///< a path is allowed
  std::string text;
};

/// One profile from the files of a model, in any order. Of each file are read
/// - model: model_name, num_layers, parameters.parameters_per_layer_bytes and, where it is,
///   parameters.activation_parameters_bytes (what a layer gives to the next for the micro-batch;
///   without it `output` stays 0 and only plans of one stage can be priced);
/// - execution_time: layer_compute_total_ms (forward and backward) and optimizer_time_ms;
/// - execution_memory: layer_memory_total_mb (of 2^20 bytes; state and activations).
///
/// The form does not say more, so this is added: a forward is one third of the sum and a backward
/// two, as they multiply once and twice; the optimizer's time is shared out by parameter bytes;
/// state and activations are told apart by how a layer's memory grows from the smallest to the
/// largest micro-batch of its degree, or, of one micro-batch alone, by a state of four times the
/// parameters; `weights` assumes 4 bytes each, which is at most what they are.
///
/// Usage error "NAME: ..." (import.metis) for another file name or form, files that disagree about
/// model or layers, and two files of the same measurement. What the numbers say is checked by
/// verify_layer_profile.
Result<LayerProfile> parse_metis_profile(const std::vector<MetisFile>& files);

}  // namespace motley::cost
