#include "motley/control/training/requests.h"

#include "motley/base/json.h"
#include "motley/control/training/joiner.h"

namespace motley::control {
namespace {

/// Returns a text of a request, which may come from anybody; "": none.
std::string text_in(const Json& question, const char* key) {
  const auto found = question.find(key);
  const bool is_text = found != question.end() && found->is_string();
  return is_text ? found->get<std::string>() : std::string();
}

Json error_to_json(const Error& error) {
  return {{"kind", static_cast<int>(error.kind)}, {"code", error.code}, {"message", error.message}};
}

Result<std::string> find_joiner(const Json& question, const Adapting& adapting) {
  const std::string named = text_in(question, "device");
  if (!named.empty()) return named;
  for (const job::DeviceStatus& each : adapting.device_states())
    if (each.state == "absent" && each.has_come) return each.name;
  return usage_error("elastic.nobody", "all devices of the run's cluster take part already");
}

Result<void> carry_out(const Json& json, Adapting& adapting) {
  const std::string what = text_in(json, "do");
  if (what == "state") return {};
  if (what == "leave") return adapting.release(text_in(json, "device"));
  if (what != "join")
    return usage_error("elastic.question", "'" + what + "': leave, join or state");
  const std::string version = text_in(json, "version"), own = adapting.version();
  if (version != own)
    return usage_error("elastic.version", "a joining device of version '" + version +
                                              "', this run is of '" + own + "'");
  if (const std::string text = text_in(json, "newcomer"); !text.empty()) {
    MOTLEY_ASSIGN(const cluster::Cluster joiner, parse_joiner(text));
    return adapting.welcome(joiner);
  }
  MOTLEY_ASSIGN(const std::string device, find_joiner(json, adapting));
  return adapting.take_in(device);
}

}  // namespace

void answer_requests(run::ControlSocket& control_socket, Adapting& adapting) {
  for (const run::ControlSocket::Question& question : control_socket.take()) {
    if (!question.knows_word) {
      const Error error{
          ErrorKind::kUsage, "elastic.word",
          "wanted WORD@HOST:PORT, as the run prints it, or its run directory: who asks "
          "or joins must know the run's word"};
      control_socket.answer(question.caller, Json{{"error", error_to_json(error)}}.dump());
      continue;
    }
    const auto json = parse_json(question.text, "question");
    const auto done = json && json->is_object() ? carry_out(*json, adapting)
                                                : usage_error("elastic.question", "not an object");
    Json answer{{"step", adapting.steps_done()}, {"devices", Json::array()}};
    for (const job::DeviceStatus& each : adapting.device_states()) {
      answer["devices"].push_back(
          {{"name", each.name}, {"state", each.state}, {"has_come", each.has_come}});
      if (each.why) answer["devices"].back()["why"] = error_to_json(*each.why);
    }
    if (!done) answer["error"] = error_to_json(done.error());
    control_socket.answer(question.caller, answer.dump());
  }
}

}  // namespace motley::control
