#include "core/event.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/clock.h"

namespace longspan {

struct Event::State {
  std::atomic<bool> done{false};
  std::mutex mutex;
  std::condition_variable changed;
  double began = 0;  // this and the next are written before `done`
  Failure failure;
  std::vector<std::function<void(const Failure&)>> callbacks;
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
  if (state_->failure) state_->failure();
}

void Event::OnDone(std::function<void(const Failure&)> callback) const {
  if (!state_) return callback(nullptr);
  {
    std::lock_guard lock(state_->mutex);
    if (!Done()) {
      state_->callbacks.push_back(std::move(callback));
      return;
    }
  }
  callback(state_->failure);
}

double Event::began() const { return state_ ? state_->began : 0; }

Event Event::OfWork(int64_t work) {
  Event event;
  event.work_ = work;
  return event;
}

Event Event::WithWork(int64_t work) const {
  Event event = *this;
  event.work_ = work;
  return event;
}

EventSource::EventSource() : state_(std::make_shared<Event::State>()) {}

void EventSource::Begin() {
  if (state_->began == 0) state_->began = Now();
}

void EventSource::Set() { Fail(nullptr); }

void EventSource::Fail(Failure failure) {
  decltype(state_->callbacks) callbacks;
  {
    std::lock_guard lock(state_->mutex);
    if (state_->done.load(std::memory_order_relaxed)) return;
    state_->failure = std::move(failure);
    state_->done.store(true, std::memory_order_release);
    callbacks.swap(state_->callbacks);
  }
  state_->changed.notify_all();
  for (const auto& callback : callbacks) callback(state_->failure);
}

Event Both(const Event& a, const Event& b) {
  if (!a.state_ && !b.state_) return a.work() > b.work() ? a : b;
  struct Missing {
    std::mutex mutex;
    int events = 2;
    Failure failure;  // the first
    EventSource source;
  };
  const auto missing = std::make_shared<Missing>();
  for (const Event& event : {a, b}) {
    event.OnDone([missing](const Failure& failure) {
      {
        std::lock_guard lock(missing->mutex);
        if (failure && !missing->failure) missing->failure = failure;
        if (--missing->events > 0) return;
      }
      missing->source.Fail(missing->failure);  // sets it where there is none
    });
  }
  return missing->source.event();
}

}  // namespace longspan
