// Things that are costly to make and that each thread needs for itself while it uses one.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace longspan {

template <class T>
class Pool {
 public:
  std::unique_ptr<T> Take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<T>();
    std::unique_ptr<T> taken = std::move(free_.back());
    free_.pop_back();
    return taken;
  }
  void Give(std::unique_ptr<T> used) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(used));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<T>> free_;
};

}  // namespace longspan
