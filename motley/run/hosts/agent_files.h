#pragma once

#include <deque>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include "motley/base/descriptor.h"
#include "motley/base/json.h"
#include "motley/base/result.h"
#include "motley/run/hosts/frame.h"
#include "motley/run/hosts/outgoing_files.h"

namespace motley::run {

/// The files of an agent: its own folder SCRATCH, locked while it lives and removed at its end, and
/// CACHE, which outlives it. Each request (agent.h) returns its answer; null: none. Runtime error
/// `agent.write`. They throw Json::exception if a part is missing.
class AgentFiles {
 public:
  explicit AgentFiles(std::string cache) : cache_(std::move(cache)) {}
  ~AgentFiles();
  AgentFiles(const AgentFiles&) = delete;
  AgentFiles& operator=(const AgentFiles&) = delete;
  /// Makes SCRATCH and removes those of killed agents. Runtime error `agent.scratch`.
  Result<void> make();

  const std::filesystem::path& scratch() const { return scratch_; }
  /// Returns the checkpoint folders below SCRATCH, half-written ones too.
  Json checkpoints() const;

  Result<Json> have(const Frame& frame);
  Result<Json> link(const Frame& frame);
  Result<Json> write(const Frame& frame);
  Result<Json> keep(const Frame& frame);
  Result<Json> append(const Frame& frame);
  /// Moves a completed file, in place of everything in its target's folder.
  Result<Json> settle(const Frame& frame);
  Result<Json> retain(const Frame& frame);
  /// Queues the files: next_outgoing returns their pieces.
  Result<Json> fetch(const Frame& frame);

  bool has_outgoing() const { return !outgoing_.empty(); }
  /// Returns the next piece; may return none once at the end of each request.
  std::optional<Frame> next_outgoing();
  void drop_outgoing() { outgoing_.clear(); }
  /// Drops a file of which some pieces arrived.
  void drop_incoming() { incoming_.reset(); }

 private:
  struct Incoming {
    std::ofstream stream;
    std::filesystem::path path;
    bool has_failed = false;  ///< the remaining pieces are ignored
  };
  std::filesystem::path inside(const Frame& frame, const char* key) const;
  std::filesystem::path kept(const Frame& frame) const;
  Result<bool> add_piece(const Frame& frame, const std::filesystem::path& path);

  std::string cache_;
  std::filesystem::path scratch_;
  Descriptor lock_;  // of SCRATCH
  std::optional<Incoming> incoming_;
  std::deque<OutgoingFiles> outgoing_;
  int fetches_ = 0;
};

}  // namespace motley::run
