#pragma once

#include <optional>
#include <string>
#include <vector>

#include "motley/report/page/report_data.h"

namespace motley::report {

enum class Liveness {
  kStill,
  kLive,  ///< receives news ("events") from the server it came from
};

/// A piece of a page that changes as a whole.
struct Section {
  std::string id, html;
  bool operator==(const Section&) const = default;
};

/// All of a page, or the part that changes during a run: head, ranks, curves and memory.
enum class Sections { kAll, kChanging };
std::vector<Section> print_sections(const ReportData& report_data, Sections which = Sections::kAll);

/// Prints a self-contained HTML page: styles, pictures and tables are inside, and it is readable
/// without its script. Everything that comes from files is escaped.
std::string print_page(const ReportData& report_data, const std::vector<Section>& sections,
                       Liveness liveness = Liveness::kStill);

/// Prints the picture of a step, device by device, as a self-contained SVG file without script, for
/// light and dark backgrounds. Returns nothing where no step is known.
std::optional<std::string> print_step_picture(const ReportData& report_data);

}  // namespace motley::report
