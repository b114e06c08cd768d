#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "motley/base/result.h"

namespace motley::data {

/// How samples are loaded by Python, where they are (is_loaded).
struct Loading {
  std::string python = "python3";      ///< interpreter with PyTorch and motley
  int processes = 0;                   ///< on each host; 0: as many as its cores leave room for
  std::map<std::string, double> pads;  ///< fill samples that are too short, by input; "": of all
  std::uint64_t seed = 0;              ///< of random transforms
  bool operator==(const Loading&) const = default;
  static void fields(auto& it, auto& field) {
    field("python", it.python)("processes", it.processes)("pads", it.pads)("seed", it.seed);
  }
};

/// Where the data is. `token_width` and `seq` are for flat token files only. Of the samples those
/// from `begin` on, before `end`, count; both may count from the end, below 0, and an absent end is
/// the end.
struct DataSource {
  std::string path;      ///< .npz, .npy, .safetensors, a folder of .npy, a flat token file, ...
  int token_width = 2;   ///< bytes of a token in a flat file: 2 or 4, unsigned
  std::int64_t seq = 0;  ///< window length of a flat token file
  std::int64_t begin = 0;
  std::optional<std::int64_t> end = {};
  std::string function = {};  ///< of the Python file `path` that makes a dataset; "": none
  /// Of a loaded source, known once it was asked; -1: a stream, which tells
  /// by ending.
  std::int64_t samples = 0;
  Loading loading = {};
  bool operator==(const DataSource&) const = default;
  static void fields(auto& it, auto& field);
};

/// Is it read by Python (a function of the user's, a table), sample by sample, rather than mapped?
bool is_loaded(const DataSource& source);

void DataSource::fields(auto& it, auto& field) {
  field("path", it.path)("begin", it.begin)("end", it.end)("token_width", it.token_width);
  field("seq", it.seq);
  const bool loads = is_loaded(it);
  field.when(loads, "function", it.function).when(loads, "samples", it.samples);
  field.when(loads, "loading", it.loading);
}

/// The samples that count: of a loaded source `samples` less what the slice leaves out.
struct Slice {
  std::int64_t begin = 0, end = 0;
};
/// Usage error where nothing is left.
Result<Slice> slice_of(const DataSource& source, std::int64_t samples);

/// Sets path, function, begin and end from "FILE" or "FILE[BEGIN:END]", as Python slices (either
/// may be absent), or "python:FILE.py:FUNCTION" with the same. Usage errors.
Result<void> parse_data_path(const std::string& text, DataSource& source);

/// Of values that fill short samples, "0" or "NAME=VALUE,NAME=VALUE". Usage errors.
Result<std::map<std::string, double>> parse_pads(const std::string& text);

}  // namespace motley::data
