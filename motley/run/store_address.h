#pragma once

#include <optional>
#include <string>

#include "motley/base/json_forward.h"
#include "motley/base/result.h"

namespace motley::run {

/// Where the ranks of a job on several machines meet: rank 0 serves it.
struct StoreAddress {
  std::string address;
  int port = 0;
  std::string secret;  ///< first part of every key: who does not know it finds nothing there
  bool operator==(const StoreAddress&) const = default;
};

/// None is null.
Json store_to_json(const std::optional<StoreAddress>& store);
Result<StoreAddress> store_from_json(const Json& json, const std::string& where);

}  // namespace motley::run
