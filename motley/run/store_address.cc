#include "motley/run/store_address.h"

#include "motley/base/json.h"

namespace motley::run {

Json store_to_json(const std::optional<StoreAddress>& store) {
  return store ? Json{{"address", store->address}, {"port", store->port}, {"secret", store->secret}}
               : Json(nullptr);
}

Result<StoreAddress> store_from_json(const Json& json, const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, where));
  StoreAddress store;
  MOTLEY_ASSIGN(store.address, object.string("address"));
  MOTLEY_ASSIGN(store.port, object.integer("port"));
  MOTLEY_ASSIGN(store.secret, object.string("secret"));
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  return store;
}

}  // namespace motley::run
