#include <fmt/format.h>

#include <algorithm>

#include "motley/base/json.h"
#include "motley/base/text.h"
#include "motley/cli/app.h"
#include "motley/cli/context/verb.h"

namespace motley::cli {
namespace {

struct ManOptions {};

std::vector<Flag> man_flags(ManOptions&) { return {}; }

/// Escapes text: hyphens stay copyable, and no line begins a request.
std::string plain(std::string_view text) {
  std::string safe = text.starts_with('.') || text.starts_with('\'') ? "\\&" : "";
  for (const char c : text)
    safe += c == '\\' ? std::string("\\e") : c == '-' ? std::string("\\-") : std::string(1, c);
  return safe;
}

std::string flag_entry(const Flag& flag) {
  std::string names;
  for (const std::string_view word : split(flag.names, ','))
    names += (names.empty() ? "\\fB" : ", \\fB") + plain(word) + "\\fR";
  if (flag.names.starts_with("-") && !std::holds_alternative<bool*>(flag.target))
    names += " \\fIVALUE\\fR";
  return fmt::format(".TP\n{}\n{}\n", names, plain(flag.help));
}

/// Prints flags by heading, in the order of first flags; those without a heading come first.
std::string flag_entries(const std::vector<Flag>& flags) {
  std::vector<std::string> headings = {""};
  for (const Flag& flag : flags)
    if (std::find(headings.begin(), headings.end(), flag.group) == headings.end())
      headings.push_back(flag.group);
  std::string text;
  for (const std::string& heading : headings) {
    if (!heading.empty()) text += fmt::format(".PP\n\\fI{}\\fR\n", plain(heading));
    for (const Flag& flag : flags)
      if (flag.group == heading) text += flag_entry(flag);
  }
  return text;
}

std::string print_page() {
  Context unused;
  std::string text = fmt::format(
      ".TH MOTLEY 1 \"\" \"motley {}\"\n.SH NAME\nmotley \\- trains one PyTorch model over unequal "
      "devices\n.SH SYNOPSIS\n\\fBmotley\\fR \\fIVERB\\fR [\\fIFLAGS\\fR]\n.SH FLAGS OF EVERY "
      "VERB\n",
      plain(version()));
  text += flag_entries(common_flags(unused)) + ".SH VERBS\n";
  for (const Verb& verb : all_verbs())
    text +=
        fmt::format(".SS {}\n{}\n", plain(verb.name), plain(verb.help)) + flag_entries(verb.flags);
  return text +
         ".SH EXIT STATUS\n0 done; 1 failed while running; 2 usage or file; 3 no feasible "
         "plan; 4 the plan is of another model or cluster; 5 a check failed; 75 stopped "
         "early with the checkpoint safe; 130 interrupted.\n";
}

Result<int> print_man(const ManOptions&, const Context& context) {
  const std::string page = print_page();
  context.result(page, {{"page", page}});
  return kDone;
}

}  // namespace

Verb man_verb() {
  return make_verb("man", "print the manual page: motley man | man -l -", man_flags, print_man);
}

}  // namespace motley::cli
