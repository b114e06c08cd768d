#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "motley/base/result.h"

namespace motley::data {

/// How Python loads samples (is_loaded).
struct Loading {
  std::string python = "python3";      ///< interpreter with PyTorch and motley
  int processes = 0;                   ///< on each host; 0: as many as its cores allow
  std::map<std::string, double> pads;  ///< fill short samples, by input; "": all
  std::uint64_t seed = 0;              ///< of random transforms
  bool operator==(const Loading&) const = default;
  static void fields(auto& it, auto& field) {
    field("python", it.python)("processes", it.processes)("pads", it.pads)("seed", it.seed);
  }
};

/// Where the data is. `token_width` and `seq` are for flat token files only. Samples [begin, end)
/// count. Negative bounds count from the end; an absent end is the end.
struct DataSource {
  std::string path;      ///< .npz, .npy, .safetensors, a folder of .npy, a flat token file, ...
  int token_width = 2;   ///< bytes of a token in a flat file: 2 or 4, unsigned
  std::int64_t seq = 0;  ///< window length of a flat token file
  std::int64_t begin = 0;
  std::optional<std::int64_t> end = {};
  std::string function = {};  ///< function of the Python file `path` that makes a dataset; "": none
  /// Of a loaded source, once it has been asked; -1: a stream of unknown length.
  std::int64_t samples = 0;
  Loading loading = {};
  bool operator==(const DataSource&) const = default;
  static void fields(auto& it, auto& field);
};

/// Returns whether Python reads it by sample (a user's function, a table); else it is mapped.
bool is_loaded(const DataSource& source);

void DataSource::fields(auto& it, auto& field) {
  field("path", it.path)("begin", it.begin)("end", it.end)("token_width", it.token_width);
  field("seq", it.seq);
  const bool loads = is_loaded(it);
  field.when(loads, "function", it.function).when(loads, "samples", it.samples);
  field.when(loads, "loading", it.loading);
}

/// The samples that count, out of `samples`.
struct Slice {
  std::int64_t begin = 0, end = 0;
};
/// Returns the slice of `samples`; usage error if it is empty.
Result<Slice> slice_of(const DataSource& source, std::int64_t samples);

/// Sets path, function, begin and end from "FILE" or "FILE[BEGIN:END]", as Python slices (either
/// may be absent), or from "python:FILE.py:FUNCTION" with the same. Usage errors.
Result<void> parse_data_path(const std::string& text, DataSource& source);

/// Parses fill values for short samples: "0" or "NAME=VALUE,NAME=VALUE". Usage errors.
Result<std::map<std::string, double>> parse_pads(const std::string& text);

}  // namespace motley::data
