#pragma once

#include <optional>
#include <string>
#include <vector>

#include "motley/report/page/report_data.h"

namespace motley::report {

enum class Liveness {
  kStill,
  kLive,  ///< asks the server that it came from for what is new ("events")
};

/// A piece of a page that changes as one.
struct Section {
  std::string id, html;
  bool operator==(const Section&) const = default;
};

/// All of a page, or what changes while a run goes on: its head, ranks, curves and memory.
enum class Sections { kAll, kChanging };
std::vector<Section> print_sections(const ReportData& report_data, Sections which = Sections::kAll);

/// A page of HTML that needs nothing else: styles, pictures and tables are in it, and it reads
/// without its script. Everything that comes from files is escaped.
std::string print_page(const ReportData& report_data, const std::vector<Section>& sections,
                       Liveness liveness = Liveness::kStill);

/// The picture of a step, device by device, as a file of SVG that needs nothing else and has no
/// script, for light and dark grounds; nothing where no step is known.
std::optional<std::string> print_step_picture(const ReportData& report_data);

}  // namespace motley::report
