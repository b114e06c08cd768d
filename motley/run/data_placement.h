#pragma once

#include <memory>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/data/dataset.h"
#include "motley/run/data_reads.h"
#include "motley/run/hosts/host_link.h"

namespace motley::run {

/// A local file of samples, from which each host receives what its ranks read.
class DataFile {
 public:
  /// Opens the file. Errors: of data::open_dataset.
  static Result<DataFile> open(const data::DataSource& source,
                               const std::vector<data::InputSpec>& inputs);
  std::int64_t samples() const { return whole_->samples(); }
  /// Puts the file at PATH below the host's folder or, if smaller, an excerpt at PATH.excerpt.
  /// Sends only what the host lacks. Any of `choices` is sufficient: takes the first that the host
  /// has, else the last. Returns the source there. Error: the host is gone or its disk full.
  Result<data::DataSource> place(HostLink& link, const std::string& path,
                                 const std::vector<DataReads>& choices) const;

 private:
  std::string excerpt_name(const DataReads& reads) const;

  data::DataSource source_;
  std::vector<data::InputSpec> inputs_;
  std::unique_ptr<data::Dataset> whole_;
  std::int64_t bytes_ = 0;
  std::string hash_;  // of the content
};

}  // namespace motley::run
