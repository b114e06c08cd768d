#pragma once

#include <string>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/run/torch/exchange/rendezvous.h"

namespace motley::run {

/// Moves a file between two ranks through the job's store, a few MiB at a time, holding no more in
/// memory. Both use the same `key` and wait at most `patience` for each other.
Result<void> send_file(Rendezvous& rendezvous, const std::string& key, const std::string& path,
                       Seconds patience);
Result<void> receive_file(Rendezvous& rendezvous, const std::string& key, const std::string& path,
                          Seconds patience);

}  // namespace motley::run
