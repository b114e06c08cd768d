#pragma once

#include <string>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/run/torch/exchange/rendezvous.h"

namespace motley::run {

/// A file from one rank to another of a job, through its store, a few MiB at a time: neither rank
/// holds more of it. Both name it by the same `key`. Waits for the other side at most `patience`.
Result<void> send_file(Rendezvous& rendezvous, const std::string& key, const std::string& path,
                       Seconds patience);
Result<void> receive_file(Rendezvous& rendezvous, const std::string& key, const std::string& path,
                          Seconds patience);

}  // namespace motley::run
