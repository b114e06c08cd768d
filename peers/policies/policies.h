#pragma once

#include "motley/adapt/batch_policies.h"
#include "motley/adapt/policies.h"

namespace motley::peers {

/// Ours (adapt/policies.h), and what others decide of the split while a training runs:
///   hetseq    the same on every device: HetSeq has the same maximum everywhere
///   adaptdl   the same on every device: AdaptDL chooses one local batch for all
///   lb-bsp    five samples a change from the slowest to the fastest device (step_mover.h)
///   cannikin  straight lines from the third epoch on (cannikin.h)
adapt::SplitPolicies split_policies();

/// Ours (adapt/batch_policies.h), and what others decide of the batch (batch_baselines.h):
///   adaptdl   once a pass the best of 50 batches, split evenly
///   cannikin  the same by straight lines of each device
///   simigrad  a tenth up or down every 100 steps by how alike gradients are
///   jabas     the same, with its own split and, once a pass, its own group of devices
adapt::BatchPolicies batch_policies();

}  // namespace motley::peers
