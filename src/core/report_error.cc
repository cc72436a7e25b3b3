#include "core/report_error.h"

#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>

#include "core/names.h"

namespace longspan {
namespace {

// The exception that is being handled, as an Error.
Error CurrentError() {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return Error("memory ran out; use more ranks, a shorter max_target_length or a smaller model",
                 ExitCode::kResource);
  } catch (const std::filesystem::filesystem_error& error) {
    return Error(fmt::format("cannot use '{}': {}; check the path and its permissions",
                             error.path1().string(), error.code().message()),
                 ExitCode::kResource);
  } catch (const std::exception& error) {
    return Error(fmt::format("{}; this is a fault of longspan, please report it", error.what()),
                 ExitCode::kInternal);
  } catch (...) {
    return Error("an error of unknown kind; this is a fault of longspan, please report it",
                 ExitCode::kInternal);
  }
}

// "rank 2: step 17: ", without what has been said already.
std::string PlaceOf(const RankError& error, const std::string& process) {
  std::string place = process.empty() ? fmt::format("rank {}: ", error.rank()) : process;
  const std::string step = fmt::format("step {}: ", error.step());
  if (std::string_view(error.what()).find(step) == std::string_view::npos) place += step;
  return place;
}

}  // namespace

void RethrowWithPlace(int rank, int64_t step) {
  try {
    throw;
  } catch (const PeerFailed&) {
    throw;
  } catch (...) {
    const Error error = CurrentError();
    throw RankError(error.what(), error.code(), rank, step);
  }
}

int ReportError(const std::string& process) {
  std::fflush(stdout);
  std::string place = process;
  try {
    throw;
  } catch (const RankError& error) {
    place = PlaceOf(error, process);
  } catch (...) {
  }
  const Error error = CurrentError();
  if (*error.what() != '\0')
    std::fputs(fmt::format("longspan: {}error: {}\n", place, OneLine(error.what())).c_str(), stderr);
  return static_cast<int>(error.code());
}

void Remark(const std::string& text) {
  std::fputs(fmt::format("longspan: {}\n", OneLine(text)).c_str(), stderr);
}

}  // namespace longspan
