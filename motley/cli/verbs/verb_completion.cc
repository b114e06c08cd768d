#include <fmt/format.h>

#include "motley/base/json.h"
#include "motley/base/text.h"
#include "motley/cli/context/verb.h"

namespace motley::cli {
namespace {

struct CompletionOptions {
  std::string shell;
};

std::vector<Flag> completion_flags(CompletionOptions& options) {
  return {{"shell", &options.shell, "bash, zsh or fish"}};
}

bool is_position(const Flag& flag) { return !flag.names.starts_with("-"); }

bool takes_value(const Flag& flag) { return !std::holds_alternative<bool*>(flag.target); }

std::vector<std::string> words_of(const std::vector<Flag>& flags) {
  std::vector<std::string> words;
  for (const Flag& flag : flags)
    if (!is_position(flag))
      for (const std::string_view word : split(flag.names, ',')) words.emplace_back(word);
  return words;
}

std::vector<std::string> verb_names(const std::vector<Verb>& verbs) {
  std::vector<std::string> names;
  for (const Verb& verb : verbs) names.push_back(verb.name);
  return names;
}

std::string bash_script(const std::vector<Verb>& verbs, const std::vector<Flag>& common) {
  std::string text = fmt::format(R"(# motley completion bash >> ~/.bashrc
_motley() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" verb="" word flags="{} --help"
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$word" in {}) verb="$word"; break ;; esac
  done
  case "$verb" in
)",
                                 join(words_of(common), " "), join(verb_names(verbs), "|"));
  for (const Verb& verb : verbs)
    text += fmt::format("    {}) flags+=\" {}\" ;;\n", verb.name, join(words_of(verb.flags), " "));
  return text + fmt::format(R"(    *) [[ "$current" == -* ]] || flags="{}" ;;
  esac
  if [[ -z "$verb" || "$current" == -* ]]; then
    COMPREPLY=($(compgen -W "$flags" -- "$current"))
  else
    COMPREPLY=($(compgen -f -- "$current"))
  fi
}}
complete -o filenames -F _motley motley
)",
                            join(verb_names(verbs), " "));
}

std::string quoted(const std::string& text) {
  std::string safe;
  for (const char c : text) safe += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return "'" + safe + "'";
}

/// Escapes help for zsh's _arguments, in which brackets and colons are special.
std::string bracketed(const std::string& help) {
  std::string safe;
  for (const char c : help)
    safe += c == '[' || c == ']' || c == ':' ? std::string{'\\', c} : std::string(1, c);
  return "[" + safe + "]";
}

std::string zsh_arguments(const std::vector<Flag>& flags) {
  std::string text;
  for (const Flag& flag : flags) {
    const std::string value = takes_value(flag) ? ":value:_files" : "";
    if (is_position(flag)) {
      text += " \\\n      " + quoted(":" + flag.names + ":_files");
      continue;
    }
    for (const std::string_view word : split(flag.names, ','))
      text += " \\\n      " + quoted("*" + std::string(word) + bracketed(flag.help) + value);
  }
  return text;
}

std::string zsh_script(const std::vector<Verb>& verbs, const std::vector<Flag>& common) {
  std::string text =
      "#compdef motley\n# motley completion zsh > a file _motley in $fpath\n"
      "_motley() {\n  local verb=${words[2]}\n  if (( CURRENT == 2 )); then\n"
      "    local -a verbs=(\n";
  for (const Verb& verb : verbs) text += "      " + quoted(verb.name + ":" + verb.help) + "\n";
  text +=
      "    )\n    _describe verb verbs\n    return\n  fi\n  shift words\n  (( CURRENT-- ))\n"
      "  case $verb in\n";
  for (const Verb& verb : verbs)
    text += fmt::format("    {})\n      _arguments{}{}\n      ;;\n", verb.name,
                        zsh_arguments(verb.flags), zsh_arguments(common));
  return text +
         "  esac\n}\nif [[ $funcstack[1] == _motley ]]; then _motley \"$@\"; else compdef "
         "_motley motley; fi\n";
}

std::string fish_flag(const Flag& flag, const std::string& condition) {
  if (is_position(flag)) return "";
  std::string text = "complete -c motley" + condition;
  for (const std::string_view word : split(flag.names, ','))
    text += word.starts_with("--") ? fmt::format(" -l {}", word.substr(2))
                                   : fmt::format(" -s {}", word.substr(1));
  return text + (takes_value(flag) ? " -r" : "") + " -d " + quoted(flag.help) + "\n";
}

std::string fish_script(const std::vector<Verb>& verbs, const std::vector<Flag>& common) {
  std::string text = "# motley completion fish > ~/.config/fish/completions/motley.fish\n";
  for (const Flag& flag : common) text += fish_flag(flag, "");
  for (const Verb& verb : verbs) {
    text += fmt::format("complete -c motley -n __fish_use_subcommand -f -a {} -d {}\n", verb.name,
                        quoted(verb.help));
    for (const Flag& flag : verb.flags)
      text += fish_flag(flag, fmt::format(" -n '__fish_seen_subcommand_from {}'", verb.name));
  }
  return text;
}

Result<int> print_completion(const CompletionOptions& options, const Context& context) {
  Context unused;
  const std::vector<Flag> common = common_flags(unused);
  std::string text;
  if (options.shell == "bash") {
    text = bash_script(all_verbs(), common);
  } else if (options.shell == "zsh") {
    text = zsh_script(all_verbs(), common);
  } else if (options.shell == "fish") {
    text = fish_script(all_verbs(), common);
  } else {
    return usage_error("cli.completion",
                       fmt::format("found '{}', wanted bash, zsh or fish", options.shell));
  }
  context.result(text, {{"shell", options.shell}, {"script", text}});
  return kDone;
}

}  // namespace

Verb completion_verb() {
  return make_verb("completion", "print a completion script for bash, zsh or fish",
                   completion_flags, print_completion);
}

}  // namespace motley::cli
