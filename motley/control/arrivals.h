#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "motley/base/result.h"

namespace motley::control {

/// What is known of devices that come to a job, beside their processes: strangers, which its
/// cluster had not, until they take part for the first time; and why devices do not.
class Arrivals {
 public:
  /// A stranger comes, or another in its place; `text`: newcomer.h.
  void expect(const std::string& device, std::string text) {
    strangers_.insert_or_assign(device, Stranger{std::move(text)});
    why_.erase(device);
  }
  bool is_stranger(const std::string& device) const { return strangers_.contains(device); }
  /// Can plans be made with it?
  bool is_priced(const std::string& device) const {
    const auto found = strangers_.find(device);
    return found == strangers_.end() || found->second.is_priced;
  }
  void set_priced(const std::string& device, bool is_priced) {
    if (const auto found = strangers_.find(device); found != strangers_.end())
      found->second.is_priced = is_priced;
  }
  /// It takes part, or could. The text of one that was a stranger until now.
  std::optional<std::string> know(const std::string& device) {
    const auto stranger = strangers_.extract(device);
    return stranger ? std::optional(stranger.mapped().text) : std::nullopt;
  }

  void explain(const std::string& device, const Error& why) { why_.insert_or_assign(device, why); }
  void forget_why(const std::string& device) { why_.erase(device); }
  /// It does not take part, where that was not asked for.
  std::optional<Error> why(const std::string& device) const {
    const auto found = why_.find(device);
    return found == why_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  struct Stranger {
    std::string text;
    bool is_priced = false;
  };
  std::map<std::string, Stranger> strangers_;
  std::map<std::string, Error> why_;
};

}  // namespace motley::control
