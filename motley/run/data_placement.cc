#include "motley/run/data_placement.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "motley/base/file.h"
#include "motley/data/excerpt.h"

namespace motley::run {
namespace {

constexpr double kMostShare = 0.9;  // of the file; else it is sent whole, which serves other runs

}  // namespace

Result<DataFile> DataFile::open(const data::DataSource& source,
                                const std::vector<data::InputSpec>& inputs) {
  DataFile file;
  file.source_ = source;
  file.inputs_ = inputs;
  MOTLEY_ASSIGN(file.whole_, data::open_dataset(source, inputs));
  MOTLEY_ASSIGN(const MappedFile mapped, MappedFile::open(source.path));
  file.bytes_ = static_cast<std::int64_t>(mapped.text().size());
  file.hash_ = content_name(mapped.text());
  return file;
}

std::string DataFile::excerpt_name(const DataReads& reads) const {
  std::string what =
      fmt::format("{} {}:{} {} {} {}", hash_, source_.begin, source_.end.value_or(-1),
                  source_.token_width, source_.seq, reads_key(reads));
  for (const data::InputSpec& input : inputs_) what += " " + input.name;
  return "excerpt-" + content_name(what);
}

Result<data::DataSource> DataFile::place(HostLink& link, const std::string& path,
                                         const std::vector<DataReads>& choices) const {
  data::DataSource there = source_;
  there.path = link.scratch() + "/" + path;
  MOTLEY_ASSIGN(const bool has_whole, link.has(hash_));
  if (has_whole) {
    MOTLEY_RETURN_IF_ERROR(link.link_kept(hash_, path));
    return there;
  }
  data::DataSource excerpt;
  excerpt.path = there.path + std::string(data::kExcerptEnding);
  const std::string excerpt_path = path + std::string(data::kExcerptEnding);
  for (const DataReads& reads : choices) {
    const std::string name = excerpt_name(reads);
    MOTLEY_ASSIGN(const bool has_it, link.has(name));
    if (!has_it) continue;
    MOTLEY_RETURN_IF_ERROR(link.link_kept(name, excerpt_path));
    return excerpt;
  }
  const auto kept = find_samples(choices.back(), kMostShare);
  if (kept) {
    const data::Excerpt made(*whole_, inputs_, *kept);
    if (static_cast<double>(made.bytes()) < kMostShare * static_cast<double>(bytes_)) {
      const std::string name = excerpt_name(choices.back());
      MOTLEY_RETURN_IF_ERROR(
          link.keep(name, [&](const HostLink::Sink& sink) { return made.write(sink); }));
      MOTLEY_RETURN_IF_ERROR(link.link_kept(name, excerpt_path));
      return excerpt;
    }
  }
  MOTLEY_ASSIGN(const MappedFile mapped, MappedFile::open(source_.path));
  MOTLEY_RETURN_IF_ERROR(link.share_named(hash_, mapped.text(), path));
  return there;
}

}  // namespace motley::run
