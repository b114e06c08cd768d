#include "motley/report/page/svg.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

namespace motley::report {
namespace {

void add_title(std::string& out, std::string_view name, std::string_view title) {
  if (title.empty())
    out += "/>";
  else
    fmt::format_to(std::back_inserter(out), "><title>{}</title></{}>", escape(title), name);
}

}  // namespace

std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        // HTML has no control characters; a line break becomes a blank.
        out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
    }
  }
  return out;
}

std::string coordinate(double value) {
  const double rounded = std::round(value * 10) / 10;
  return fmt::format("{:g}", rounded == 0 ? 0 : rounded);
}

Svg::Svg(double width, double height, std::string_view label) : width_(width), height_(height) {
  out_ = fmt::format(
      "<svg viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" role=\"img\" aria-label=\"{2}\">",
      coordinate(width), coordinate(height), escape(label));
}

void Svg::rect(double x, double y, double width, double height, std::string_view classes,
               std::string_view title) {
  fmt::format_to(std::back_inserter(out_),
                 "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" class=\"{}\"", coordinate(x),
                 coordinate(y), coordinate(width), coordinate(height), classes);
  add_title(out_, "rect", title);
}

void Svg::line(double x1, double y1, double x2, double y2, std::string_view classes) {
  fmt::format_to(std::back_inserter(out_),
                 "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" class=\"{}\"/>", coordinate(x1),
                 coordinate(y1), coordinate(x2), coordinate(y2), classes);
}

void Svg::text(double x, double y, std::string_view classes, std::string_view text) {
  fmt::format_to(std::back_inserter(out_), "<text x=\"{}\" y=\"{}\" class=\"{}\">{}</text>",
                 coordinate(x), coordinate(y), classes, escape(text));
}

void Svg::path(std::string_view data, std::string_view classes, std::string_view title) {
  fmt::format_to(std::back_inserter(out_), "<path d=\"{}\" class=\"{}\"", data, classes);
  add_title(out_, "path", title);
}

std::string Svg::str() && { return std::move(out_) + "</svg>"; }

std::string Svg::file(std::string_view head) && {
  constexpr double kMargin = 16;
  const std::string width = coordinate(width_ + 2 * kMargin);
  const std::string height = coordinate(height_ + 2 * kMargin);
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"{0} {0} {1} {2}\" width=\"{1}\" "
      "height=\"{2}\">{3}<rect x=\"{0}\" y=\"{0}\" width=\"{1}\" height=\"{2}\" rx=\"6\" "
      "class=\"ground\"/>{4}</svg>\n",
      coordinate(-kMargin), width, height, head, std::move(*this).str());
}

}  // namespace motley::report
