#include "motley/report/page/layer_names.h"

#include <algorithm>
#include <array>

namespace motley::report {
namespace {

bool is_number(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

constexpr std::array<std::string_view, 9> kOfGradients = {
    "motley::pack",   "motley::unpack",      "motley::update",
    "motley::report", "motley::square_sums", "motley::direction",
    "motley::apply",  "motley::average",     "motley::assign"};

}  // namespace

std::string layer_of(std::string_view name) {
  const std::size_t blank = name.find(' ');
  const std::string_view op = name.substr(0, blank);
  if (std::find(kOfGradients.begin(), kOfGradients.end(), op) != kOfGradients.end())
    return "update";
  if (blank == std::string_view::npos || op == "motley::load" || op == "motley::tangent" ||
      op == "motley::stop_request")
    return "batch";
  const std::string_view path = name.substr(blank + 1);
  if (path.starts_with("bucket ") || path == "updated") return "update";
  std::size_t begin = 0;
  while (begin < path.size()) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    if (begin > 0 && is_number(path.substr(begin, end - begin)))
      return std::string(path.substr(0, end));
    begin = end + 1;
  }
  return std::string(path.substr(0, path.find('.')));
}

}  // namespace motley::report
