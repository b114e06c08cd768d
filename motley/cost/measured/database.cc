#include "motley/cost/measured/database.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <utility>

#include "motley/base/check.h"

namespace motley::cost {
namespace {

constexpr int kBusyMilliseconds = 5000;

tl::unexpected<Error> fault(sqlite3* connection, const std::string& path) {
  const int code = sqlite3_errcode(connection) & 0xff;
  const std::string text = sqlite3_errmsg(connection);
  switch (code) {
    case SQLITE_NOTADB:
      return usage_error("cost.not-a-store", fmt::format("{}: is not a profile store", path));
    case SQLITE_CORRUPT:
      return usage_error("cost.corrupt-store",
                         fmt::format("{}: the profile store is corrupt ({}); remove it and run "
                                     "`motley profile` again",
                                     path, text));
    case SQLITE_CANTOPEN:
      return usage_error("cost.open", fmt::format("{}: cannot be opened ({})", path, text));
    case SQLITE_READONLY:
      return usage_error("cost.open", fmt::format("{}: cannot be written ({})", path, text));
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return runtime_error(
          "cost.busy", fmt::format("{}: another process has held the profile store for {} s", path,
                                   kBusyMilliseconds / 1000));
    default:
      return runtime_error("cost.store", fmt::format("{}: {}", path, text));
  }
}

}  // namespace

void Statement::Finalize::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

Statement::Statement(sqlite3* connection, sqlite3_stmt* statement, const std::string& path)
    : connection_(connection), statement_(statement), path_(&path) {}

int Statement::next_parameter() {
  // Rows of an earlier use may not have been read to the end.
  if (next_ == 1) sqlite3_reset(statement_.get());
  return next_++;
}

Statement& Statement::bind(std::string_view text) {
  // A null pointer would bind NULL.
  const char* data = text.empty() ? "" : text.data();
  MOTLEY_CHECK(sqlite3_bind_text64(statement_.get(), next_parameter(), data, text.size(),
                                   SQLITE_TRANSIENT, SQLITE_UTF8) == SQLITE_OK);
  return *this;
}

Statement& Statement::bind(std::int64_t number) {
  MOTLEY_CHECK(sqlite3_bind_int64(statement_.get(), next_parameter(), number) == SQLITE_OK);
  return *this;
}

Statement& Statement::bind(double number) {
  MOTLEY_CHECK(sqlite3_bind_double(statement_.get(), next_parameter(), number) == SQLITE_OK);
  return *this;
}

Result<bool> Statement::step() {
  const int code = sqlite3_step(statement_.get());
  next_ = 1;
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) {
    sqlite3_reset(statement_.get());
    return false;
  }
  const auto error = fault(connection_, *path_);
  sqlite3_reset(statement_.get());
  return error;
}

Result<void> Statement::run() {
  MOTLEY_ASSIGN(const bool has_row, step());
  MOTLEY_CHECK(!has_row);
  return {};
}

std::string Statement::text(int column) const {
  const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(statement_.get(), column));
  if (bytes == nullptr) return {};
  return {bytes, static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column))};
}

std::int64_t Statement::integer(int column) const {
  return sqlite3_column_int64(statement_.get(), column);
}

double Statement::real(int column) const { return sqlite3_column_double(statement_.get(), column); }

void Database::Close::operator()(sqlite3* connection) const { sqlite3_close_v2(connection); }

Result<std::unique_ptr<Database>> Database::open(const std::string& path) {
  std::unique_ptr<Database> database(new Database());
  database->path_ = path;
  sqlite3* connection = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &connection,
                                   SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, nullptr);
  database->connection_.reset(connection);
  MOTLEY_CHECK(connection != nullptr);
  if (code != SQLITE_OK) return fault(connection, path);
  sqlite3_busy_timeout(connection, kBusyMilliseconds);
  return database;
}

Result<Statement> Database::prepare(std::string_view sql) const {
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v2(connection_.get(), sql.data(), static_cast<int>(sql.size()),
                                      &statement, nullptr);
  if (code != SQLITE_OK) return fault(connection_.get(), path_);
  return Statement(connection_.get(), statement, path_);
}

Result<void> Database::run(const char* sql) const {
  if (sqlite3_exec(connection_.get(), sql, nullptr, nullptr, nullptr) == SQLITE_OK) return {};
  return fault(connection_.get(), path_);
}

Result<std::int64_t> Database::integer(std::string_view sql) const {
  MOTLEY_ASSIGN(Statement statement, prepare(sql));
  MOTLEY_ASSIGN(const bool has_row, statement.step());
  return has_row ? statement.integer(0) : 0;
}

Result<Transaction> Transaction::begin(const Database& database) {
  MOTLEY_RETURN_IF_ERROR(database.run("BEGIN IMMEDIATE"));
  return Transaction(database);
}

Transaction::Transaction(Transaction&& other) noexcept
    : database_(std::exchange(other.database_, nullptr)) {}

Transaction::~Transaction() {
  if (database_ != nullptr) static_cast<void>(database_->run("ROLLBACK"));
}

Result<void> Transaction::commit() {
  MOTLEY_RETURN_IF_ERROR(database_->run("COMMIT"));
  database_ = nullptr;
  return {};
}

}  // namespace motley::cost
