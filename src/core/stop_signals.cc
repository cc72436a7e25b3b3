#include "core/stop_signals.h"

#include <atomic>

namespace longspan {
namespace {

// A handler gets nothing of its own to write to, and may touch no more than a lock-free atomic.
std::atomic<bool> is_caught{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void Note(int) { is_caught = true; }

void CatchOnce(int signal, struct sigaction& before) {
  struct sigaction note = {};
  note.sa_handler = Note;
  sigemptyset(&note.sa_mask);
  note.sa_flags = SA_RESTART | SA_RESETHAND;  // reads and writes go on; the next one is not caught
  sigaction(signal, nullptr, &before);
  if (before.sa_handler != SIG_IGN) sigaction(signal, &note, nullptr);
}

}  // namespace

void StopSignals::Catch() {
  std::call_once(once_, [this] {
    is_caught = false;
    CatchOnce(SIGTERM, before_term_);
    CatchOnce(SIGINT, before_int_);
    catches_ = true;
  });
}

StopSignals::~StopSignals() {
  if (!catches_) return;
  sigaction(SIGTERM, &before_term_, nullptr);
  sigaction(SIGINT, &before_int_, nullptr);
}

bool StopSignals::caught() const { return catches_ && is_caught; }

}  // namespace longspan
