#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "motley/cluster/cluster.h"
#include "motley/cost/links/collectives.h"
#include "motley/cost/measured/profile_store.h"

namespace motley::cost {

/// "local" or "1Gbps+100us": how a group is joined, as the store names it; "local by nvlink" of
/// GPUs of a node that says how they reach each other, so that bridges price no bus.
std::string route_key(const cluster::Cluster& cluster, const std::vector<DeviceId>& devices);

/// Key of exchanges through host memory: "gloo", which is shared memory within a machine; "gloo
/// only" if the cluster's transport forbids that; with " of gpus" where the cluster has CUDA
/// devices, whose tensors are copied to the host and back. Of the cluster, not the group: of each
/// route the smallest and the largest group are measured, whoever is in them.
std::string host_backend_key(const cluster::Cluster& cluster);

/// "nccl" for a group of CUDA devices and planning kinds only, where no two ranks of the cluster
/// are one GPU's; else as host_backend_key.
std::string backend_key(const cluster::Cluster& cluster, const std::vector<DeviceId>& devices);

/// Are the devices on two nodes or more, one of which has several of them?
bool has_levels(const cluster::Cluster& cluster, const std::vector<DeviceId>& devices);

/// What a message costs its ends where nobody measured it, of the order that the libraries show on
/// current hardware: 10 us (NCCL), 50 us (Gloo).
Transport usual_transport(Backend backend);

/// Ends the version of PyTorch in keys of GPUs that may use TF32.
inline constexpr const char* kTf32Suffix = "+tf32";

/// Profile key of a device: "cpu" and its model, or the GPU's model, if known, else its kind;
/// threads; the minor version of PyTorch ("2.15" for "2.15.0+cpu"), of all but CPUs with
/// kTf32Suffix where the version has it.
DeviceKey device_key(const cluster::Device& device, const std::string& torch_version);

/// CPU devices other than this one on its host, which compute at the same time in a shared step:
/// they take part of the host's memory bandwidth and caches. None for other kinds.
std::vector<DeviceId> neighbours(const cluster::Cluster& cluster, DeviceId device);

/// Profile key of an emulated device among its neighbours: "cpu at 0.2 beside 0.4 0.8".
DeviceKey emulated_key(const cluster::Cluster& cluster, DeviceId device,
                       const std::string& torch_version);

/// True when its host emulates devices and it is not alone there, or grants it less than a core:
/// what sharing processors costs, and halts, are measured by whole steps.
bool has_pace(const cluster::Cluster& cluster, DeviceId device);

/// Memory that PyTorch holds on a device beside `tensors` in use at the peak: 0 on CPUs, whose
/// limits are on tensors. On GPUs what was measured there (Device::framework); else 512 MiB, about
/// what a CUDA context with cuBLAS takes (300 to 600 MiB by kind and version), and 7.1 % of the
/// tensors, which its caching allocator reserves beyond them by rounding and fragmentation (the
/// median over Aceso's runs on GH200 that Sailor's authors published).
Bytes framework_bytes(const cluster::Device& device, Bytes tensors);

/// Both together.
Bytes with_framework(const cluster::Device& device, Bytes tensors);

/// About the part of a global batch that a device of a host gets: by its speed.
std::int64_t usual_samples(const cluster::Cluster& cluster, DeviceId device,
                           std::int64_t global_batch);

/// Profile key of a device in a step that it shares: as device_key, with "cpu beside 2" where it
/// has two neighbours.
DeviceKey shared_key(const cluster::Cluster& cluster, DeviceId device,
                     const std::string& torch_version);

}  // namespace motley::cost
