#pragma once

#include <functional>
#include <string>
#include <vector>

#include "motley/base/result.h"

namespace motley::cli {

/// Where the demo looks for what lies outside the program.
struct DemoSearch {
  std::string program;       ///< path of motley itself
  std::string torch_folder;  ///< of the PyTorch that the worker runs; "": there is no worker
  std::string torch;         ///< its version, "2.15"
  std::string python;        ///< as the flag says; "": it was not given
  std::string named_python;  ///< as MOTLEY_PYTHON says; "": likewise
  std::string examples;      ///< as the flag says; "": likewise
};

/// What it found.
struct DemoPlaces {
  std::string python;    ///< interpreter that has PyTorch
  std::string package;   ///< folder that the package `motley` is imported from; "": python has it
  std::string examples;  ///< folder of them
  bool operator==(const DemoPlaces&) const = default;
};

/// Can this interpreter import all of these modules? "": it can; else why not, in words ("has no
/// torch").
using AskPython =
    std::function<std::string(const std::string& python, const std::vector<std::string>& modules)>;

/// Finds all of it, from any working directory:
/// - the examples beside the folder of the program, where they are both in the sources (build/) and
///   as they are installed (motley/bin/);
/// - the package in python/ beside the folder of the program, which is the sources'; one that is
///   installed is its interpreter's own;
/// - the interpreter that was named, and no other; else that of the environment in which motley is
///   installed, the one beside the PyTorch that the worker runs, .venv/bin/python of the sources,
///   python3: the first that has PyTorch, and the package where that is its own.
/// Usage errors say what was tried, and what to type: demo.python, demo.examples.
Result<DemoPlaces> find_demo_places(const DemoSearch& search, const AskPython& ask);

/// Asks the interpreter itself, without loading PyTorch, which would take seconds.
std::string ask_python(const std::string& python, const std::vector<std::string>& modules);

}  // namespace motley::cli
