// SIGTERM and SIGINT as a wish: a program that has something to save ends when it has.
#pragma once

#include <csignal>
#include <mutex>

namespace longspan {

// From Catch until its end the first SIGTERM and the first SIGINT of this process are only noted; a second
// one of the same kind ends the process, as both do otherwise. One that the process was started to ignore
// stays ignored. At most one of a process catches.
class StopSignals {
 public:
  StopSignals() = default;
  ~StopSignals();  // what was done about them before
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  void Catch();  // the first call counts; by any thread
  bool caught() const;

 private:
  std::once_flag once_;
  bool catches_ = false;
  struct sigaction before_term_ = {}, before_int_ = {};
};

}  // namespace longspan
