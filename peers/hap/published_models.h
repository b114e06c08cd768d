#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "peers/hap/cost.h"
#include "peers/hap/reference_graph.h"

namespace motley::peers {

/// Make the four workloads that HAP's authors evaluate, as their released program builds them, with
/// 32 samples per device: BERT over 128 tokens and a vocabulary of 33,280; ViT over 64 patches of a
/// 32 x 32 image; both 768 wide with 12 heads and a feed-forward layer of 3,072; BERT-MoE with two
/// experts per device in every other layer. `devices` and `layers` are 1 or more.
ReferenceGraph make_bert(std::int64_t devices, std::int64_t layers = 12);
ReferenceGraph make_vit(std::int64_t devices, std::int64_t layers = 12);
ReferenceGraph make_vgg19(std::int64_t devices);
ReferenceGraph make_bert_moe(std::int64_t devices, std::int64_t layers = 12);

/// Makes one V100 to three P100 (`devices` a multiple of 4) on 10 Gbit/s, as profiled in 2023.
HapCluster make_v100_p100_cluster(std::int64_t devices);
/// Makes equal devices with the released program's default speeds and bandwidths.
HapCluster make_default_cluster(std::int64_t devices);

}  // namespace motley::peers
