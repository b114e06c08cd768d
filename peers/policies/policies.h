#pragma once

#include "motley/adapt/batch_policies.h"
#include "motley/adapt/policies.h"

namespace motley::peers {

/// Lists ours (adapt/policies.h), and other tools' policies of the split during training:
///   hetseq    the same on every device: HetSeq has the same maximum everywhere
///   adaptdl   the same on every device: AdaptDL chooses one local batch for all
///   lb-bsp    moves five samples per change from the slowest to the fastest device (step_mover.h)
///   cannikin  straight lines from the third epoch on (cannikin.h)
adapt::SplitPolicies split_policies();

/// Lists ours (adapt/batch_policies.h), and other tools' policies of the batch (batch_baselines.h):
///   adaptdl   the best of 50 batches per pass, split evenly
///   cannikin  the same by straight lines of each device
///   simigrad  a tenth up or down every 100 steps, by the similarity of gradients
///   jabas     the same, with its own split and, once per pass, its own group of devices
adapt::BatchPolicies batch_policies();

}  // namespace motley::peers
