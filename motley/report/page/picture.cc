#include "motley/report/page/picture.h"

#include <fmt/format.h>

#include "motley/base/text.h"

namespace motley::report {

Cell seconds_cell(std::string place, double seconds) {
  return {format_seconds(Seconds(seconds)), std::move(place), seconds};
}

Cell bytes_cell(std::string place, Bytes bytes) {
  return {format_bytes(bytes), std::move(place), static_cast<double>(bytes.value)};
}

Cell share_cell(std::string place, double share) {
  return {fmt::format("{:.1f} %", 100 * share), std::move(place), share};
}

Cell number_cell(std::string place, double number) {
  return {fmt::format("{:.6g}", number), std::move(place), number};
}

std::string legend_entry(std::string_view classes, std::string_view text) {
  return fmt::format(
      "<span class=\"key\"><svg width=\"18\" height=\"12\" aria-hidden=\"true\"><rect x=\".5\" "
      "y=\".5\" width=\"17\" height=\"11\" class=\"{}\"/></svg>{}</span>",
      classes, escape(text));
}

std::string fit(std::string_view text, double width) {
  constexpr double kCharacter = 6.6;  // pixels per character at 12 pixels high
  const auto most = static_cast<std::size_t>(std::max(0.0, width / kCharacter));
  if (text.size() <= most) return std::string(text);
  // Cuts between characters: removes the continuation bytes of UTF-8.
  std::size_t end = most > 3 ? most - 1 : 0;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return end == 0 ? "" : std::string(text.substr(0, end)) + "\u2026";
}

std::string fit_bold(std::string_view text, double width) {
  constexpr double kWider = 0.88;  // characters that fit per regular one
  return fit(text, kWider * width);
}

}  // namespace motley::report
