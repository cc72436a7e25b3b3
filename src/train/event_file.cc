#include "train/event_file.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <chrono>
#include <filesystem>

#include "core/check.h"

namespace longspan {
namespace {

constexpr std::string_view kFileVersion = "brain.Event:2";  // the first that knows of session starts

// Fields of the messages, by their numbers.
enum EventField { kWallTime = 1, kStep = 2, kFileVersionField = 3, kSummary = 5, kSessionLog = 7 };
enum SummaryField { kValue = 1 };
enum ValueField { kTag = 1, kSimpleValue = 2 };
enum SessionLogField { kStatus = 1 };
constexpr uint64_t kSessionStart = 1;

template <class T>
void AppendLittleEndian(T value, std::string* out) {
  for (size_t i = 0; i < sizeof(T); ++i) out->push_back(static_cast<char>(value >> (8 * i)));
}

// A protocol buffer in the making.
class Message {
 public:
  Message& Integer(int field, uint64_t value) {
    Tag(field, kVarint);
    Varint(value);
    return *this;
  }
  Message& Double(int field, double value) {
    Tag(field, kFixed64);
    AppendLittleEndian(std::bit_cast<uint64_t>(value), &text_);
    return *this;
  }
  Message& Float(int field, float value) {
    Tag(field, kFixed32);
    AppendLittleEndian(std::bit_cast<uint32_t>(value), &text_);
    return *this;
  }
  Message& Bytes(int field, std::string_view bytes) {
    Tag(field, kBytes);
    Varint(bytes.size());
    text_ += bytes;
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  enum WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
  void Tag(int field, WireType type) { Varint((static_cast<uint64_t>(field) << 3) | type); }
  // Seven bits a byte, the lowest first; all bytes but the last have the highest bit set.
  void Varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) text_.push_back(static_cast<char>(value | 0x80));
    text_.push_back(static_cast<char>(value));
  }
  std::string text_;
};

constexpr std::array<uint32_t, 256> kCrcTable = [] {
  constexpr uint32_t kPolynomial = 0x82f63b78;  // its bits reversed
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? (crc >> 1) ^ kPolynomial : crc >> 1;
    table[byte] = crc;
  }
  return table;
}();

// As it stands in a file: a checksum of bytes that hold their own checksum would say little.
uint32_t MaskedCrc(std::string_view bytes) { return std::rotr(Crc32c(bytes), 15) + 0xa282ead8; }

std::string Record(const Message& event) {
  std::string record;
  AppendLittleEndian<uint64_t>(event.text().size(), &record);
  AppendLittleEndian(MaskedCrc(record), &record);
  record += event.text();
  AppendLittleEndian(MaskedCrc(event.text()), &record);
  return record;
}

Message EventAt(double wall_time, int64_t step) {
  return Message().Double(kWallTime, wall_time).Integer(kStep, static_cast<uint64_t>(step));
}

double WallTime() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// "events.out.tfevents.1700000000.123456" in that directory, which is there from now on.
std::string NewFile(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  Require(ExitCode::kResource, !error, "cannot make the folder {} for TensorBoard: {}", directory,
          error.message());
  const int64_t microseconds = static_cast<int64_t>(WallTime() * 1e6);
  return fmt::format("{}/events.out.tfevents.{:010}.{:06}", directory, microseconds / 1'000'000,
                     microseconds % 1'000'000);
}

}  // namespace

uint32_t Crc32c(std::string_view bytes) {
  uint32_t crc = ~uint32_t{0};
  for (const char c : bytes) crc = (crc >> 8) ^ kCrcTable[(crc ^ static_cast<uint8_t>(c)) & 0xff];
  return ~crc;
}

std::string FileVersionRecord(double wall_time) {
  return Record(Message().Double(kWallTime, wall_time).Bytes(kFileVersionField, kFileVersion));
}

std::string SessionStartRecord(double wall_time, int64_t step) {
  const Message start = Message().Integer(kStatus, kSessionStart);
  return Record(EventAt(wall_time, step).Bytes(kSessionLog, start.text()));
}

std::string ScalarsRecord(double wall_time, int64_t step, std::span<const Scalar> scalars) {
  Message summary;
  for (const Scalar& scalar : scalars) {
    const Message value =
        Message().Bytes(kTag, scalar.tag).Float(kSimpleValue, static_cast<float>(scalar.value));
    summary.Bytes(kValue, value.text());
  }
  return Record(EventAt(wall_time, step).Bytes(kSummary, summary.text()));
}

EventFile::EventFile(const std::string& directory, int64_t first_step) : file_(NewFile(directory)) {
  const double now = WallTime();
  file_.Append(FileVersionRecord(now) + SessionStartRecord(now, first_step));
}

void EventFile::Append(int64_t step, std::span<const Scalar> scalars) {
  file_.Append(ScalarsRecord(WallTime(), step, scalars));
}

}  // namespace longspan
