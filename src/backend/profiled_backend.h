// A backend that is watched: each operation is also reported to a TraceRecorder, with the time that it took.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "core/trace_recorder.h"

namespace longspan {

// Does what `backend` does, to the same bits, in the same arena. What an operation is called and what it
// counts is what a dry run of it says. While `recorder`, which outlives it, is off, nothing is measured.
std::unique_ptr<Backend> MakeProfiledBackend(std::unique_ptr<Backend> backend, TraceRecorder& recorder);

}  // namespace longspan
