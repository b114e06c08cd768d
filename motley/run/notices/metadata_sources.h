#pragma once

#include <memory>
#include <string>

#include "motley/run/notices/notice_source.h"

namespace motley::run {

/// Where a metadata server is, and whose protocol it has: "aws", "gcp" or "azure".
struct MetadataPlace {
  std::string source;
  std::string host = "169.254.169.254";  ///< the address of all three
  int port = 80;
};

std::unique_ptr<NoticeSource> make_metadata_source(MetadataPlace place,
                                                   const NoticeSourceOptions& options);

}  // namespace motley::run
