// Who sees whom, pair by pair, straight from what each mask means: no runs, no intervals.
#pragma once

#include <span>

#include "mask/mask.h"

namespace longspan::reference {

inline bool Sees(const MaskSpec& spec, std::span<const Range> documents, int64_t row, int64_t key) {
  for (const Range& document : documents) {
    if (row < document.begin || row >= document.end) continue;
    if (key < document.begin || key >= document.end) return false;
    const bool past = key <= row;
    const bool near = row - key < spec.window;
    switch (spec.kind) {
      case MaskKind::kFull:
        return true;
      case MaskKind::kCausal:
        return past;
      case MaskKind::kSlidingWindow:
        return past && near;
      case MaskKind::kChunked:
        return past && (row - document.begin) / spec.chunk == (key - document.begin) / spec.chunk;
      case MaskKind::kPrefix:
        return past || key - document.begin < spec.prefix;
      case MaskKind::kSinkWindow:
        return past && (near || key - document.begin < spec.sinks);
    }
  }
  return false;  // padding
}

}  // namespace longspan::reference
