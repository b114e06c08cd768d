#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "motley/cluster/cluster.h"
#include "motley/cost/links/collectives.h"
#include "motley/cost/measured/profile_store.h"

namespace motley::cost {

/// Returns the store's name for a group's connection: "local", "1Gbps+100us", or "local by nvlink"
/// for GPUs of a node that states how they reach each other, so that NVLink prices no bus.
std::string route_key(const cluster::Cluster& cluster, const std::vector<DeviceId>& devices);

/// Returns the key of exchanges through host memory: "gloo" (shared memory within a machine), "gloo
/// only" if the cluster's transport forbids that, plus " of gpus" if the cluster has CUDA devices,
/// whose tensors are copied to the host and back. It depends on the cluster, not the group: each
/// route is measured for its smallest and largest group, with any members.
std::string host_backend_key(const cluster::Cluster& cluster);

/// Returns "nccl" for a group of GPUs if no ranks of the cluster share a GPU; else
/// host_backend_key.
std::string backend_key(const cluster::Cluster& cluster, const std::vector<DeviceId>& devices);

/// Returns whether the devices are on at least two nodes and one node has several of them.
bool has_levels(const cluster::Cluster& cluster, const std::vector<DeviceId>& devices);

/// Returns the usual cost of a message at its ends on current hardware: 10 us (NCCL), 50 us (Gloo).
Transport usual_transport(Backend backend);

/// Suffix of PyTorch's version in keys of GPUs that may use TF32.
inline constexpr const char* kTf32Suffix = "+tf32";

/// Returns the profile key of a device: "cpu" and its model, or the GPU's model or else its kind,
/// and a quota's share of a core; threads; PyTorch's minor version ("2.15" for "2.15.0+cpu"), for
/// GPUs with its kTf32Suffix.
DeviceKey device_key(const cluster::Device& device, const std::string& torch_version);

/// Returns the other CPU devices of its host. They compute at the same time in a shared step and
/// share the host's memory bandwidth and caches. Other kinds have no neighbours.
std::vector<DeviceId> neighbours(const cluster::Cluster& cluster, DeviceId device);

/// Returns the profile key of an emulated device among its neighbours: "cpu at 0.2 beside 0.4 0.8".
DeviceKey emulated_key(const cluster::Cluster& cluster, DeviceId device,
                       const std::string& torch_version);

/// Returns whether its host emulates devices and it has neighbours there, or it gets less than a
/// core. Then shared processors and pauses make whole-step measurements necessary.
bool has_pace(const cluster::Cluster& cluster, DeviceId device);

/// Returns the memory that PyTorch holds on a device besides `tensors` in use at the peak: 0 on
/// CPUs, whose limits are on tensors. On GPUs the measured values (Device::framework); else 512
/// MiB, about the size of a CUDA context with cuBLAS (300 to 600 MiB by kind and version), and 7.1
/// % of the tensors, which the caching allocator reserves additionally by rounding and
/// fragmentation (the median over Aceso's runs on GH200 that Sailor's authors published).
Bytes framework_bytes(const cluster::Device& device, Bytes tensors);

/// Returns `tensors` plus framework_bytes.
Bytes with_framework(const cluster::Device& device, Bytes tensors);

/// Returns a device's approximate part of a global batch on its host, by speed.
std::int64_t usual_samples(const cluster::Cluster& cluster, DeviceId device,
                           std::int64_t global_batch);

/// Returns device_key for a shared step: "cpu beside 2" for a device with two neighbours.
DeviceKey shared_key(const cluster::Cluster& cluster, DeviceId device,
                     const std::string& torch_version);

}  // namespace motley::cost
