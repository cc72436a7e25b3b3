// TensorBoard's event files, of which a run writes one each time it starts (docs/reference/metrics.md).
//
// A file is a sequence of records: the payload's length (8 bytes), a checksum of these bytes, the payload, a
// checksum of it, all little-endian. A payload is a protocol buffer `Event`, of which scalars need so few
// fields that they are written by hand (event.proto and summary.proto of TensorBoard).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/file.h"

namespace longspan {

struct Scalar {
  std::string_view tag;  // "learning/loss"
  double value = 0;      // a file holds it in float32
};

// Whole records. `wall_time` is in seconds since 1970.
//
// The first of a file: which version of the format it has.
std::string FileVersionRecord(double wall_time);
// The run starts, or goes on, with this step: what was read before of it and later ones counts no more.
std::string SessionStartRecord(double wall_time, int64_t step);
std::string ScalarsRecord(double wall_time, int64_t step, std::span<const Scalar> scalars);

// CRC-32C (Castagnoli), as in RFC 3720.
uint32_t Crc32c(std::string_view bytes);

class EventFile {
 public:
  // A new file in `directory`, which is made if it isn't there, for a run whose next step is `first_step`.
  // TensorBoard reads files by their names, so the name is of the time: later ones come after. Throws
  // Error(kResource).
  EventFile(const std::string& directory, int64_t first_step);
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;
  void Append(int64_t step, std::span<const Scalar> scalars);

 private:
  FileAppender file_;
};

}  // namespace longspan
