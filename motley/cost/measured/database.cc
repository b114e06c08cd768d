#include "motley/cost/measured/database.h"

#include <fmt/format.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include "motley/base/check.h"
#include "motley/base/text.h"

namespace motley::cost {
namespace {

/// Finds another process of this host with a lock on the file, preferably a writer. Reads the
/// system's list, because opening and closing the file would drop this process's own locks.
std::optional<std::int64_t> find_holder(const std::string& path) {
  struct stat file {};
  if (::stat(path.c_str(), &file) != 0) return std::nullopt;
  std::ifstream locks("/proc/locks");
  std::optional<std::int64_t> reader;
  std::string line;
  while (std::getline(locks, line)) {
    // "1: POSIX  ADVISORY  WRITE 4711 fe:00:1234 1073741825 1073741825"
    std::istringstream words(line);
    std::string number, sort, strength, kind, place;
    std::int64_t pid = 0;
    if (!(words >> number >> sort >> strength >> kind >> pid >> place)) continue;  // "1: -> ..."
    const bool is_there = place.ends_with(fmt::format(":{}", file.st_ino));
    if (!is_there || pid <= 0 || pid == ::getpid()) continue;
    if (kind == "WRITE") return pid;
    reader = pid;
  }
  return reader;
}

}  // namespace

tl::unexpected<Error> Database::fault() const {
  const int code = sqlite3_extended_errcode(connection_.get());
  const std::string text = sqlite3_errmsg(connection_.get());
  switch (code) {
    case SQLITE_IOERR_LOCK:
    case SQLITE_IOERR_RDLOCK:
    case SQLITE_IOERR_UNLOCK:
    case SQLITE_IOERR_CHECKRESERVEDLOCK:
      return usage_error("cost.no-locks",
                         fmt::format("{}: its file system does not lock files, so that processes "
                                     "cannot share the profile store; name another place "
                                     "(MOTLEY_PROFILES)",
                                     path_));
  }
  switch (code & 0xff) {
    case SQLITE_NOTADB:
      return usage_error("cost.not-a-store", fmt::format("{}: is not a profile store", path_));
    case SQLITE_CORRUPT:
      return usage_error("cost.corrupt-store",
                         fmt::format("{}: the profile store is corrupt ({}); remove it and run "
                                     "`motley profile` again",
                                     path_, text));
    case SQLITE_CANTOPEN:
      return usage_error("cost.open", fmt::format("{}: cannot be opened ({})", path_, text));
    case SQLITE_READONLY:
      return usage_error("cost.open", fmt::format("{}: cannot be written ({})", path_, text));
    case SQLITE_BUSY:
    case SQLITE_LOCKED: {
      const auto holder = find_holder(path_);
      return runtime_error(
          "cost.busy",
          fmt::format("{}: {} has held the profile store for {}; wait for it or stop it{}", path_,
                      holder ? fmt::format("process {}", *holder)
                             : "another process, of this host or another,",
                      format_seconds(wait_), holder ? fmt::format(" (kill {})", *holder) : ""));
    }
    default:
      return runtime_error("cost.store", fmt::format("{}: {}", path_, text));
  }
}

void Statement::Finalize::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

Statement::Statement(const Database& database, sqlite3_stmt* statement)
    : database_(&database), statement_(statement) {}

int Statement::next_parameter() {
  // Rows of an earlier use may be unread.
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
  const auto error = database_->fault();
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

Result<std::unique_ptr<Database>> Database::open(const std::string& path, Seconds wait) {
  std::unique_ptr<Database> database(new Database());
  database->path_ = path;
  database->wait_ = wait;
  sqlite3* connection = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &connection,
                                   SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, nullptr);
  database->connection_.reset(connection);
  MOTLEY_CHECK(connection != nullptr);
  if (code != SQLITE_OK) return database->fault();
  sqlite3_busy_timeout(connection, static_cast<int>(std::lround(1000 * wait.value)));
  return database;
}

Result<Statement> Database::prepare(std::string_view sql) const {
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v2(connection_.get(), sql.data(), static_cast<int>(sql.size()),
                                      &statement, nullptr);
  if (code != SQLITE_OK) return fault();
  return Statement(*this, statement);
}

Result<void> Database::run(const char* sql) const {
  if (sqlite3_exec(connection_.get(), sql, nullptr, nullptr, nullptr) == SQLITE_OK) return {};
  return fault();
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
