#include "core/event.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace longspan {

struct Event::State {
  std::atomic<bool> done{false};
  std::mutex mutex;
  std::condition_variable changed;
  std::exception_ptr error;  // written before `done`
  std::vector<std::function<void(const std::exception_ptr&)>> callbacks;
};

bool Event::Done() const { return !state_ || state_->done.load(std::memory_order_acquire); }

void Event::Wait() const {
  if (!state_) return;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::microseconds(50);
  while (!Done() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  if (!Done()) {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [&] { return Done(); });
  }
  if (state_->error) std::rethrow_exception(state_->error);
}

void Event::OnDone(std::function<void(const std::exception_ptr&)> callback) const {
  if (!state_) return callback(nullptr);
  {
    std::lock_guard lock(state_->mutex);
    if (!Done()) {
      state_->callbacks.push_back(std::move(callback));
      return;
    }
  }
  callback(state_->error);
}

EventSource::EventSource() : state_(std::make_shared<Event::State>()) {}

void EventSource::Set() { Fail(nullptr); }

void EventSource::Fail(std::exception_ptr error) {
  decltype(state_->callbacks) callbacks;
  {
    std::lock_guard lock(state_->mutex);
    if (state_->done.load(std::memory_order_relaxed)) return;
    state_->error = std::move(error);
    state_->done.store(true, std::memory_order_release);
    callbacks.swap(state_->callbacks);
  }
  state_->changed.notify_all();
  for (const auto& callback : callbacks) callback(state_->error);
}

}  // namespace longspan
