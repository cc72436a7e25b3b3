// The check of an error's message, and files to make errors with.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>
#include <string_view>

#include "core/check.h"

namespace longspan::testing {

// Runs `act`, which must throw Error(code) with all of `parts` in its message.
template <class Act>
void ExpectError(std::initializer_list<std::string_view> parts, Act act, ExitCode code = ExitCode::kInput) {
  try {
    act();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.code(), code) << message;
    for (const std::string_view part : parts)
      EXPECT_NE(message.find(part), message.npos) << message << "\nlacks: " << part;
  }
}

// Writes a file, with the folders it needs; returns `path`. A file that is there is removed first, since ext4
// takes its time to write over one.
inline std::string WriteText(const std::string& path, std::string_view text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::filesystem::remove(path);
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

}  // namespace longspan::testing
