#include "motley/report/page/page.h"

#include <fmt/format.h>

#include <iterator>

#include "motley/base/text.h"
#include "motley/report/page/page_parts.h"
#include "motley/report/page/picture.h"

namespace motley::report {
namespace {

std::vector<Picture> draw(const ReportData& report_data, Sections which) {
  std::vector<Picture> pictures;
  const auto add = [&](std::optional<Picture> picture) {
    if (picture) pictures.push_back(std::move(*picture));
  };
  const bool all = which == Sections::kAll;
  add(draw_ranks(report_data));
  if (all) add(draw_timelines(report_data));
  for (Picture& each : draw_curves(report_data)) pictures.push_back(std::move(each));
  add(draw_memory(report_data));
  if (!all) return pictures;
  add(draw_links(report_data));
  add(draw_layers(report_data));
  add(draw_stages(report_data));
  add(draw_neighbours(report_data));
  return pictures;
}

std::string print_cell(const Cell& cell) {
  if (cell.place.empty()) return fmt::format("<td>{}</td>", escape(cell.text));
  return fmt::format("<td class=\"n\" data-key=\"{}\" data-value=\"{}\">{}</td>",
                     escape(cell.place), print_float(cell.value), escape(cell.text));
}

std::string print_table(const Table& table) {
  std::string html = "<div class=\"scroll\"><table><thead><tr>";
  for (const std::string& each : table.head) html += "<th>" + escape(each) + "</th>";
  html += "</tr></thead><tbody>";
  for (const std::vector<Cell>& row : table.rows) {
    html += "<tr>";
    for (const Cell& cell : row) html += print_cell(cell);
    html += "</tr>";
  }
  return html + "</tbody></table></div>";
}

std::string print_picture(const Picture& picture) {
  if (picture.wide.empty())
    return fmt::format("<h2>{}</h2><p>{}</p>", escape(picture.title), escape(picture.says));
  constexpr std::size_t kOpen = 12;  // rows up to which a table is open
  return fmt::format(
      "<h2>{}</h2><p>{}</p>{}<figure class=\"wide\">{}</figure><figure "
      "class=\"narrow\">{}</figure><details{}><summary>The same in numbers</summary>{}</details>",
      escape(picture.title), escape(picture.says),
      picture.legend.empty() ? "" : "<p class=\"legend\">" + picture.legend + "</p>", picture.wide,
      picture.narrow, picture.table.rows.size() <= kOpen ? " open" : "",
      print_table(picture.table));
}

}  // namespace

std::vector<Section> print_sections(const ReportData& report_data, Sections which) {
  std::string head = fmt::format(
      "<p class=\"state {0}\">{0}</p><h1>{1}</h1><p class=\"verdict\">{2}</p>",
      escape(report_data.state), escape(report_data.title), escape(report_data.verdict));
  for (const std::string& each : report_data.remarks)
    head += "<p class=\"remark\">" + escape(each) + "</p>";
  std::vector<Section> sections{{"head", std::move(head)}};
  for (const Picture& picture : draw(report_data, which))
    sections.push_back({picture.id, print_picture(picture)});
  if (which == Sections::kAll && !report_data.command.empty())
    sections.push_back({"command", "<h2>To repeat it</h2><pre class=\"scroll\">" +
                                       escape(report_data.command) + "</pre>"});
  return sections;
}

std::string print_page(const ReportData& report_data, const std::vector<Section>& sections,
                       Liveness liveness) {
  const bool is_live = liveness == Liveness::kLive;
  std::string inside;
  for (const Section& each : sections)
    inside += fmt::format("<section id=\"{}\">{}</section>\n", escape(each.id), each.html);
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; connect-src {}\">"
      "<link rel=\"icon\" href=\"data:,\"><title>{}: {}</title><style>{}{}</style></head>"
      "<body><svg width=\"0\" height=\"0\" style=\"position:absolute\" "
      "aria-hidden=\"true\">{}</svg>"
      "<main id=\"page\">{}</main><script>{}</script></body></html>\n",
      is_live ? "'self'" : "'none'", escape(report_data.title), escape(report_data.state),
      kPictureStyle, kPageStyle, kPatterns, inside,
      is_live ? fmt::format("{}{}", kZoomScript, kLiveScript) : std::string(kZoomScript));
}

std::optional<std::string> print_step_picture(const ReportData& report_data) {
  return draw_timelines_alone(report_data,
                              fmt::format("<style>{}</style>{}", kPictureStyle, kPatterns));
}

}  // namespace motley::report
