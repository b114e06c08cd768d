#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace motley::trace {

/// The names of a device's instructions, by instruction. Equal texts may be stored once, even
/// across devices: a program of a million instructions has few different names.
class Names {
 public:
  Names() = default;
  Names(std::initializer_list<std::string> names) {
    for (const std::string& name : names) push_back(name);
  }
  std::size_t size() const { return which_.size(); }
  const std::string& operator[](std::size_t i) const { return (*texts_)[which_[i]]; }
  void push_back(std::string name) {
    if (!texts_ || texts_.use_count() > 1) copy_texts();
    which_.push_back(static_cast<std::uint32_t>(texts_->size()));
    texts_->push_back(std::move(name));
  }
  bool operator==(const Names& other) const {
    bool is_equal = size() == other.size();
    for (std::size_t i = 0; is_equal && i < size(); ++i) is_equal = (*this)[i] == other[i];
    return is_equal;
  }

 private:
  friend class NamePool;
  void copy_texts() {
    auto texts = std::make_shared<std::vector<std::string>>();
    for (std::uint32_t& which : which_) {
      texts->push_back((*texts_)[which]);
      which = static_cast<std::uint32_t>(texts->size()) - 1;
    }
    texts_ = std::move(texts);
  }

  std::shared_ptr<std::vector<std::string>> texts_;  // shared by the devices of a NamePool
  std::vector<std::uint32_t> which_;                 // by instruction
};

/// Makes the names of several devices and stores each text once.
class NamePool {
 public:
  void add_device() { devices_.emplace_back(); }
  /// Adds the name of the next instruction of the last device.
  void add(const std::string& name) {
    const auto next = static_cast<std::uint32_t>(number_.size());
    devices_.back().which_.push_back(number_.try_emplace(name, next).first->second);
  }
  std::vector<Names> take() && {
    auto texts = std::make_shared<std::vector<std::string>>(number_.size());
    for (const auto& [name, number] : number_) (*texts)[number] = name;
    for (Names& names : devices_) names.texts_ = texts;
    return std::move(devices_);
  }

 private:
  std::unordered_map<std::string, std::uint32_t> number_;
  std::vector<Names> devices_;
};

}  // namespace motley::trace
