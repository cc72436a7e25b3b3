// Event files, read by code of its own: framing, checksums and fields.
#include "train/event_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/check.h"
#include "support/expect_error.h"
#include "support/files.h"

namespace longspan {
namespace {

namespace fs = std::filesystem;
using testing::ExpectError;

// Bit by bit, from the polynomial's definition.
uint32_t SlowCrc(std::string_view bytes) {
  uint32_t crc = ~uint32_t{0};
  for (const char c : bytes) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (0x82f63b78 & (~(crc & 1) + 1));
  }
  return ~crc;
}

uint32_t Masked(std::string_view bytes) {
  const uint32_t crc = SlowCrc(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

template <class T>
T Take(std::string_view& bytes) {
  T value;
  CHECK(bytes.size() >= sizeof value);
  std::memcpy(&value, bytes.data(), sizeof value);
  bytes.remove_prefix(sizeof value);
  return value;
}

uint64_t TakeVarint(std::string_view& bytes) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const uint8_t byte = Take<uint8_t>(bytes);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
}

// A message's fields, by number: bytes, or the 4 or 8 bytes of a number, or a varint as 8 bytes.
std::multimap<int, std::string> Fields(std::string_view message) {
  std::multimap<int, std::string> fields;
  while (!message.empty()) {
    const uint64_t tag = TakeVarint(message);
    std::string value;
    const auto take = [&](size_t size) {
      CHECK(size <= message.size());
      value = message.substr(0, size);
      message.remove_prefix(size);
    };
    switch (tag & 7) {
      case 0: {
        const uint64_t number = TakeVarint(message);
        value.assign(reinterpret_cast<const char*>(&number), sizeof number);
        break;
      }
      case 1:
        take(8);
        break;
      case 2:
        take(TakeVarint(message));
        break;
      case 5:
        take(4);
        break;
      default:
        ADD_FAILURE() << "wire type " << (tag & 7);
        return fields;
    }
    fields.emplace(static_cast<int>(tag >> 3), value);
  }
  return fields;
}

template <class T>
T As(const std::string& bytes) {
  CHECK(bytes.size() == sizeof(T));
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

struct ReadEvent {
  double wall_time = 0;
  int64_t step = 0;
  std::string version;
  std::optional<uint64_t> session_status;
  std::map<std::string, float> scalars;
};

std::vector<ReadEvent> ReadEvents(const std::string& file) {
  std::string_view rest = file;
  std::vector<ReadEvent> events;
  while (!rest.empty()) {
    const std::string_view length_bytes = rest.substr(0, 8);
    const auto length = Take<uint64_t>(rest);
    EXPECT_EQ(Take<uint32_t>(rest), Masked(length_bytes));
    CHECK(length <= rest.size());
    const std::string_view payload = rest.substr(0, length);
    rest.remove_prefix(length);
    EXPECT_EQ(Take<uint32_t>(rest), Masked(payload));
    ReadEvent& event = events.emplace_back();
    for (const auto& [field, value] : Fields(payload)) {
      if (field == 1) event.wall_time = As<double>(value);
      if (field == 2) event.step = As<int64_t>(value);
      if (field == 3) event.version = value;
      if (field == 7) event.session_status = As<uint64_t>(Fields(value).find(1)->second);
      if (field != 5) continue;
      for (const auto& [number, scalar] : Fields(value)) {
        EXPECT_EQ(number, 1);
        const auto parts = Fields(scalar);
        EXPECT_EQ(parts.size(), 2u);
        event.scalars[parts.find(1)->second] = As<float>(parts.find(2)->second);
      }
    }
  }
  return events;
}

std::vector<std::string> FilesIn(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) names.push_back(entry.path().string());
  std::ranges::sort(names);
  return names;
}

TEST(EventFile, ChecksumsAreCastagnolis) {
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  std::string bytes;
  for (int i = 0; i < 300; ++i) {
    bytes.push_back(static_cast<char>(i * i >> 3));
    EXPECT_EQ(Crc32c(bytes), SlowCrc(bytes)) << i;
  }
}

// As TensorBoard's own classes write the same events: tests/golden/event_files.py.
TEST(EventFile, EqualsTensorBoardsOwnByteForByte) {
  const Scalar first[] = {{"learning/loss", 2.5}, {"perf/mfu", 0}};
  const Scalar second[] = {{"learning/loss", 1e-30}, {"perf/mfu", 0}};
  const std::string file = FileVersionRecord(1700000000.25) + SessionStartRecord(1700000000.5, 301) +
                           ScalarsRecord(1700000001.125, 301, first) +
                           ScalarsRecord(1700000001.125, int64_t{1} << 40, second);
  EXPECT_TRUE(file == ReadTextFile(LONGSPAN_SOURCE_DIR "/tests/golden/events.tfevents"));
}

TEST(EventFile, HoldsWhatWasAppendedAndSaysWhereItStarts) {
  const testing::TemporaryDirectory directory;
  const std::string folder = directory / "run/tensorboard";
  {
    EventFile file(folder, 1);
    for (int64_t step = 1; step <= 3; ++step) {
      const Scalar scalars[] = {{"learning/loss", 0.1 * static_cast<double>(step)}, {"perf/mfu", 0.25}};
      file.Append(step, scalars);
    }
  }
  {
    EventFile resumed(folder, 3);
    const Scalar scalars[] = {{"learning/loss", 7}};
    resumed.Append(3, scalars);
  }
  const std::vector<std::string> files = FilesIn(folder);
  ASSERT_EQ(files.size(), 2u);
  for (const std::string& path : files) EXPECT_NE(path.find("tfevents"), path.npos) << path;

  const std::vector<ReadEvent> events = ReadEvents(ReadTextFile(files[0]));
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_GT(events[0].wall_time, 1.7e9);
  EXPECT_EQ(events[1].session_status, 1u);
  EXPECT_EQ(events[1].step, 1);
  for (size_t i = 2; i < 5; ++i) {
    EXPECT_EQ(events[i].step, static_cast<int64_t>(i) - 1);
    EXPECT_EQ(events[i].scalars.at("learning/loss"),
              static_cast<float>(0.1 * static_cast<double>(events[i].step)));
    EXPECT_EQ(events[i].scalars.at("perf/mfu"), 0.25f);
    EXPECT_GE(events[i].wall_time, events[i - 1].wall_time);
  }
  // The later one comes after, by name, and takes back what the first has of step 3.
  const std::vector<ReadEvent> later = ReadEvents(ReadTextFile(files[1]));
  ASSERT_EQ(later.size(), 3u);
  EXPECT_EQ(later[1].session_status, 1u);
  EXPECT_EQ(later[1].step, 3);
  EXPECT_EQ(later[2].scalars.at("learning/loss"), 7);
}

TEST(EventFile, AFolderThatCannotBeMadeIsAnError) {
  const testing::TemporaryDirectory directory;
  testing::WriteText(directory / "file", "");
  ExpectError(
      {"for TensorBoard", directory / "file"}, [&] { EventFile file(directory / "file/x", 1); },
      ExitCode::kResource);
}

}  // namespace
}  // namespace longspan
