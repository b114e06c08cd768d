#pragma once

#include <functional>
#include <string>
#include <vector>

#include "motley/base/result.h"

namespace motley::cli {

/// The inputs of the demo's search for what lies outside the program.
struct DemoSearch {
  std::string program;
  std::string torch_folder;  ///< of the worker's PyTorch; "": there is no worker
  std::string torch;         ///< its version, "2.15"
  std::string python;        ///< from the flag; "": not given
  std::string named_python;  ///< from MOTLEY_PYTHON; "": not given
  std::string examples;      ///< from the flag; "": not given
};

struct DemoPlaces {
  std::string python;   ///< interpreter with PyTorch
  std::string package;  ///< folder to import the package `motley` from; "": python has it
  std::string examples;
  bool operator==(const DemoPlaces&) const = default;
};

/// Can this interpreter import all modules? "": yes; else the reason ("has no torch").
using AskPython =
    std::function<std::string(const std::string& python, const std::vector<std::string>& modules)>;

/// Finds all places, from any working directory:
/// - The examples are beside the program's folder: build/ in the sources, else motley/bin/.
/// - The package is in python/ beside the program's folder in the sources. An installed package
///   belongs to its interpreter.
/// - The interpreter is the named one and no other. Otherwise it is the first that has PyTorch,
///   and the package unless that is in the sources, among: the one of motley's environment, the
///   one beside the worker's PyTorch, .venv/bin/python of the sources, python3.
/// Usage errors demo.python and demo.examples say what was tried and what to type.
Result<DemoPlaces> find_demo_places(const DemoSearch& search, const AskPython& ask);

std::string ask_python(const std::string& python, const std::vector<std::string>& modules);

}  // namespace motley::cli
