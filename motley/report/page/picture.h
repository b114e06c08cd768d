#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "motley/report/page/report_data.h"
#include "motley/report/page/svg.h"

namespace motley::report {

/// A cell of a table: a text, or a number with its place in the JSON ("/links/0/bytes").
struct Cell {
  std::string text;
  std::string place = {};
  double value = 0;
};
Cell seconds_cell(std::string place, double seconds);
Cell bytes_cell(std::string place, Bytes bytes);
Cell share_cell(std::string place, double share);
Cell number_cell(std::string place, double number);

/// The numbers of a picture as a table.
struct Table {
  std::vector<std::string> head;
  std::vector<std::vector<Cell>> rows;
};

/// One section of a page: the same picture in two widths, and its table.
struct Picture {
  std::string id;            ///< "gantt"
  std::string title;         ///< "A step, device by device"
  std::string says;          ///< how to read it
  std::string wide, narrow;  ///< empty: nothing to draw yet
  Table table;
  std::string legend = {};  ///< HTML
};

/// Returns the HTML of a swatch and its meaning.
std::string legend_entry(std::string_view classes, std::string_view text);

/// Returns as much of a text as fits `width` pixels at 12 pixels high; "" where nothing does.
std::string fit(std::string_view text, double width);
std::string fit_bold(std::string_view text, double width);

/// Draw the pictures of a report; none where there is nothing to show.
std::optional<Picture> draw_timelines(const ReportData& report_data);
std::optional<std::string> draw_timelines_alone(const ReportData& report_data,
                                                std::string_view head);
std::optional<Picture> draw_memory(const ReportData& report_data);
std::vector<Picture> draw_curves(const ReportData& report_data);
std::optional<Picture> draw_links(const ReportData& report_data);
std::optional<Picture> draw_layers(const ReportData& report_data);
std::optional<Picture> draw_stages(const ReportData& report_data);
std::optional<Picture> draw_neighbours(const ReportData& report_data);
std::optional<Picture> draw_ranks(const ReportData& report_data);

}  // namespace motley::report
