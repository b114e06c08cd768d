#include "motley/run/written_files.h"

#include "motley/base/json.h"

namespace motley::run {
namespace {

Json hashes_to_json(const std::map<std::string, std::string>& hashes) {
  Json json = Json::object();
  for (const auto& [name, hash] : hashes) json[name] = hash;
  return json;
}

/// {file name: hash}
Result<std::map<std::string, std::string>> hashes_from_json(const Json& json,
                                                            const std::string& where) {
  std::map<std::string, std::string> hashes;
  for (const auto& [name, hash] : json.items()) {
    if (!json.is_object() || !hash.is_string() || name.empty() || name.front() == '.' ||
        // A name from a file becomes a path: it must not leave the folder.
        name.find('/') != std::string::npos)
      return usage_error("run.checkpoint", where + ": wanted file names with their hashes");
    hashes[name] = hash.get<std::string>();
  }
  return hashes;
}

Json held_to_json(const HeldFiles& held) {
  Json json = Json::object();
  for (const auto& [name, file] : held) json[name] = {{"host", file.host}, {"folder", file.folder}};
  return json;
}

Result<HeldFiles> held_from_json(const Json& json, const std::string& where) {
  HeldFiles held;
  for (const auto& [name, file] : json.items()) {
    MOTLEY_ASSIGN(JsonObject object, JsonObject::make(file, where + ": " + name));
    MOTLEY_ASSIGN(held[name].host, object.string("host"));
    MOTLEY_ASSIGN(held[name].folder, object.string("folder"));
    MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  }
  return held;
}

}  // namespace

std::map<std::string, std::vector<std::string>> names_by_host(const HeldFiles& held) {
  std::map<std::string, std::vector<std::string>> names;
  for (const auto& [name, file] : held) names[file.host].push_back(name);
  return names;
}

Json written_files_to_json(const WrittenFiles& files) {
  Json json{{"model_files", hashes_to_json(files.model)},
            {"optimizer_files", hashes_to_json(files.optimizer)}};
  if (!files.held.empty()) json["held"] = held_to_json(files.held);
  return json;
}

Result<WrittenFiles> read_written_files(JsonObject& object) {
  WrittenFiles files;
  MOTLEY_ASSIGN(const Json* model, object.member("model_files"));
  MOTLEY_ASSIGN(files.model, hashes_from_json(*model, object.where() + ": model_files"));
  MOTLEY_ASSIGN(const Json* optimizer, object.member("optimizer_files"));
  MOTLEY_ASSIGN(files.optimizer,
                hashes_from_json(*optimizer, object.where() + ": optimizer_files"));
  if (object.has("held")) {
    MOTLEY_ASSIGN(files.held, held_from_json(**object.member("held"), object.where() + ": held"));
  }
  return files;
}

Result<WrittenFiles> written_files_from_json(const Json& json, const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, where));
  MOTLEY_ASSIGN(WrittenFiles files, read_written_files(object));
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  return files;
}

}  // namespace motley::run
