#pragma once

#include <string>

namespace motley::run {

/// Where the ranks of a job on several machines meet.
struct StoreAddress {
  std::string address;
  int port = 0;
  std::string secret;  ///< first part of every key; keys cannot be found without it
  static void fields(auto& it, auto& field) {
    field("address", it.address)("port", it.port)("secret", it.secret);
  }
  bool operator==(const StoreAddress&) const = default;
};

}  // namespace motley::run
