#include "comm/mpi_job.h"

#include <sys/prctl.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <exception>
#include <iterator>
#include <system_error>
#include <utility>

#include "core/check.h"
#include "core/clock.h"
#include "core/failure.h"
#include "core/launched.h"
#include "core/memory.h"
#include "core/report_error.h"

namespace longspan {
namespace {

using Seconds = std::chrono::duration<double>;

// While nothing moves the thread looks again and again for a moment, then sleeps for a tenth of the time in
// which nothing has: so it delays nothing by much more than a tenth, and takes next to nothing of a core.
constexpr double kSpin = 50e-6, kShortestSleep = 10e-6, kLongestSleep = 500e-6, kLongestIdleSleep = 5e-3;

// After a failure: for a message that is on its way, and until all have said that they move nothing more; for
// what they say of it; and for their ends.
constexpr double kQuietSeconds = 1, kLastWordSeconds = 1, kEndSeconds = 10, kSaySeconds = 0.3;

std::string FailureOf(int rank, const std::string& reason) {
  return fmt::format("rank {} failed: {}", rank, reason);
}

}  // namespace

MpiJob::MpiJob() {
  const auto begun = std::make_shared<std::promise<void>>();
  try {
    thread_ = std::thread([this, begun] {
      try {
        Begin();
      } catch (...) {
        return begun->set_exception(std::current_exception());
      }
      begun->set_value();
      Work();
      Finish();
    });
  } catch (const std::system_error& error) {
    throw Error(fmt::format("cannot start the thread of MPI: {}; raise the limit on processes (ulimit -u)",
                            error.code().message()),
                ExitCode::kResource);
  }
  try {
    begun->get_future().get();
  } catch (...) {
    thread_.join();
    throw;
  }
}

MpiJob::~MpiJob() { CHECK(!thread_.joinable()); }

void MpiJob::Begin() {
  prctl(PR_SET_TIMERSLACK, 1000UL);  // its sleeps are short
  int provided = MPI_THREAD_SINGLE;
  CheckMpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "begin");
  Require(ExitCode::kResource, provided >= MPI_THREAD_FUNNELED,
          "this MPI works in programs of one thread only; build with one that offers MPI_THREAD_FUNNELED");
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  const int launched = LaunchedRank().value_or(rank_);
  Require(
      ExitCode::kResource, launched == rank_,
      "the launcher calls this process rank {}, but its MPI library says rank {} of {}; start it with the "
      "launcher of the MPI that longspan was built with",
      launched, rank_, size_);
  CheckMpi(MPI_Comm_dup(MPI_COMM_WORLD, &messages_), "make a communicator");
  CheckMpi(MPI_Comm_dup(MPI_COMM_WORLD, &notices_), "make a communicator");
  MPI_Comm_set_errhandler(messages_, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(notices_, MPI_ERRORS_RETURN);

  int* largest_tag = nullptr;
  int is_set = 0;
  MPI_Comm_get_attr(messages_, MPI_TAG_UB, &largest_tag, &is_set);
  CHECK(is_set != 0 && *largest_tag >= 32767);
  const int bits = std::bit_width(static_cast<unsigned>(*largest_tag)) - 1;  // all smaller numbers are tags
  group_bits_ = std::min(10, bits / 3);
  operation_bits_ = bits - 1 - group_bits_;

  watch_.emplace(rank_, size_);
  num_groups_.resize(static_cast<size_t>(size_));
  peers_.resize(static_cast<size_t>(size_));
  CheckMpi(MPI_Irecv(&heard_, sizeof heard_, MPI_BYTE, MPI_ANY_SOURCE, 0, notices_, &hearing_), "receive");
}

int MpiJob::Tag(uint32_t group, Channel channel, uint32_t operation) const {
  const uint32_t groups = 1u << group_bits_, operations = 1u << operation_bits_;
  return static_cast<int>((group % groups * 2 + static_cast<uint32_t>(channel)) * operations +
                          operation % operations);
}

void MpiJob::Work() {
  MpiTransfers transfers(messages_, rank_, [this](const auto& operation) { OnDone(operation); });
  double moved_at = Now(), stopped_at = 0, leaving_at = 0;
  for (;;) {
    std::deque<std::shared_ptr<MpiOperation>> begun;
    std::deque<Notice> to_tell;
    bool ended = false, leaving = false, quiet = false;
    {
      std::lock_guard lock(mutex_);
      begun.swap(begun_);
      to_tell.swap(to_tell_);
      ended = ended_;
      quiet = quiet_;
      leaving = leaving_;
    }
    bool moved = !begun.empty() || !to_tell.empty();
    try {
      for (const auto& operation : begun)
        if (!ended) transfers.Start(operation);
      for (const Notice& notice : to_tell)
        for (int r = 0; r < size_; ++r)
          if (r != rank_) Send(notice, r);
      if (transfers.Poll()) moved = true;
      bytes_moved_ = transfers.bytes_moved();
      if (PollNotices()) moved = true;
      if (!ended) Watch(Now());
    } catch (const std::exception& error) {
      const std::string reason = FailureOf(rank_, error.what());
      Failure failure = CurrentFailure();
      std::lock_guard lock(mutex_);
      EndLocked(rank_, std::move(failure), reason);
    }

    const double now = Now();
    if (ended && stopped_at == 0) {
      transfers.Stop();
      KeepMemory();  // MPI cannot take back what is being sent
      stopped_at = now;
    }
    if (ended && !quiet && (!transfers.receives() || now - stopped_at > kQuietSeconds)) BecomeQuiet();
    if (leaving) {
      if (leaving_at == 0) leaving_at = now;
      const bool is_told = telling_.empty() && to_tell.empty();
      if ((is_told && (ended || transfers.idle())) || now - leaving_at > kQuietSeconds) return;
    }

    if (moved) {
      moved_at = now;
    } else if (now - moved_at < kSpin) {
      std::this_thread::yield();
    } else {
      const double longest = transfers.idle() && telling_.empty() ? kLongestIdleSleep : kLongestSleep;
      const Seconds sleep(std::clamp((now - moved_at) / 10, kShortestSleep, longest));
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, sleep, [&] {
        return !begun_.empty() || !to_tell_.empty() || ended_ != ended || leaving_ != leaving;
      });
    }
  }
}

// Messages that nobody will take remain, if the job has failed.
void MpiJob::Finish() {
  if (aborts_) MPI_Abort(MPI_COMM_WORLD, exit_code_);
  MPI_Cancel(&hearing_);
  MPI_Wait(&hearing_, MPI_STATUS_IGNORE);
  MPI_Comm_free(&notices_);
  MPI_Comm_free(&messages_);
  MPI_Finalize();
}

bool MpiJob::PollNotices() {
  bool moved = false;
  for (auto it = telling_.begin(); it != telling_.end();) {
    int is_done = 0;
    CheckMpi(MPI_Test(&it->request, &is_done, MPI_STATUS_IGNORE), "send");
    it = is_done ? telling_.erase(it) : std::next(it);
    moved = moved || is_done;
  }
  for (;;) {
    int is_done = 0;
    MPI_Status status;
    CheckMpi(MPI_Test(&hearing_, &is_done, &status), "receive");
    if (!is_done) return moved;
    Hear(heard_, status.MPI_SOURCE);
    moved = true;
    CheckMpi(MPI_Irecv(&heard_, sizeof heard_, MPI_BYTE, MPI_ANY_SOURCE, 0, notices_, &hearing_), "receive");
  }
}

void MpiJob::Hear(const Notice& notice, int from) {
  std::lock_guard lock(mutex_);
  Peer& peer = peers_[static_cast<size_t>(from)];
  if (notice.kind == Notice::kAnswer) {
    for (const int rank : watch_->HearAnswer(Now(), from, notice.report)) Answer(rank);
  } else if (notice.kind == Notice::kAsk) {
    watch_->HearAsked(Now(), from);
    Answer(from);
  } else if (notice.kind == Notice::kFailed || notice.kind == Notice::kStopped) {
    if (notice.kind == Notice::kStopped) peer.stopped = true;
    const std::string reason = notice.text;
    EndLocked(
        notice.culprit, [reason] { throw PeerFailed(reason); }, reason, notice.is_lost != 0);
  } else {
    peer.ended = true;
    peer.last_word = notice.text;
  }
  changed_.notify_all();
}

// Nothing is written to memory of this rank's operations any more.
void MpiJob::BecomeQuiet() {
  decltype(outstanding_) failed;
  Failure failure;
  {
    std::lock_guard lock(mutex_);
    quiet_ = true;
    failed.swap(outstanding_);
    failure = failure_;
    Tell(EndNotice(Notice::kStopped));
  }
  for (const auto& operation : failed) operation->source.Fail(failure);
  changed_.notify_all();
}

void MpiJob::OnDone(const std::shared_ptr<MpiOperation>& operation) {
  {
    std::lock_guard lock(mutex_);
    outstanding_.erase(operation);
  }
  operation->source.Set();  // whose callbacks take the mutex
}

Event MpiJob::Post(const std::shared_ptr<MpiOperation>& operation, const Event& after) {
  {
    std::unique_lock lock(mutex_);
    if (ended_) {
      changed_.wait(lock, [&] { return quiet_; });
      operation->source.Fail(failure_);
      return operation->source.event();
    }
    outstanding_.insert(operation);
  }
  after.OnDone(
      [job = shared_from_this(), operation](const Failure& failure) { job->OnBegun(operation, failure); });
  return operation->source.event();
}

// `after` has happened. If it failed, so does the operation, and no memory it names is ever touched.
void MpiJob::OnBegun(const std::shared_ptr<MpiOperation>& operation, const Failure& failure) {
  {
    std::lock_guard lock(mutex_);
    if (ended_) return;  // the thread has failed it, or will
    if (!failure) {
      begun_.push_back(operation);
      wake_.notify_one();
      return;
    }
    outstanding_.erase(operation);
  }
  operation->source.Fail(failure);
}

void MpiJob::EndLocked(int culprit, Failure failure, const std::string& reason, bool is_lost) {
  if (ended_) return;
  ended_ = true;
  has_lost_ = is_lost;
  if (is_lost) peers_[static_cast<size_t>(culprit)].Lose();
  culprit_ = culprit;
  failure_ = std::move(failure);
  reason_ = reason;
  wake_.notify_one();
}

void MpiJob::End(const std::string& reason) {
  std::unique_lock lock(mutex_);
  const std::string message = FailureOf(rank_, reason);
  EndLocked(
      rank_, [message] { throw PeerFailed(message); }, message);
  changed_.wait_for(lock, Seconds(2 * kQuietSeconds), [&] { return quiet_ && AllOthers(&Peer::stopped); });
}

void MpiJob::RequireGoingOn() {
  std::unique_lock lock(mutex_);
  if (!ended_) return;
  changed_.wait(lock, [&] { return quiet_; });
  failure_();
}

void MpiJob::SayLastWord(const std::string& error) {
  std::lock_guard lock(mutex_);
  Notice notice;
  notice.kind = Notice::kLastWord;
  error.copy(notice.text, sizeof notice.text - 1);
  Tell(notice);
}

bool MpiJob::IsSaidBefore(const std::string& error) {
  std::unique_lock lock(mutex_);
  const std::string said = error.substr(0, sizeof Notice{}.text - 1);
  const auto is_said = [&] {
    return std::any_of(peers_.begin(), peers_.begin() + rank_,
                       [&](const Peer& peer) { return peer.ended && peer.last_word == said; });
  };
  const auto have_spoken = [&] {
    return std::all_of(peers_.begin(), peers_.begin() + rank_, [](const Peer& peer) { return peer.ended; });
  };
  changed_.wait_for(lock, Seconds(kLastWordSeconds), [&] { return is_said() || have_spoken(); });
  return is_said();
}

int MpiJob::culprit() {
  std::lock_guard lock(mutex_);
  return culprit_;
}

void MpiJob::Leave(int exit_code) {
  {
    std::unique_lock lock(mutex_);
    const auto have_ended = [&] { return AllOthers(&Peer::ended); };
    aborts_ = ended_ && !changed_.wait_for(lock, Seconds(kEndSeconds), have_ended);
    if (has_lost_) {  // MPI can't end without the lost one
      aborts_ = true;
      const double seconds = has_judged_ ? kSaySeconds : kEndSeconds;
      lock.unlock();
      std::this_thread::sleep_for(Seconds(seconds));  // so that all have said what they have to say
      lock.lock();
    }
    exit_code_ = exit_code;
    leaving_ = true;
    wake_.notify_one();
  }
  thread_.join();
}

bool MpiJob::AllOthers(bool Peer::*flag) const {
  for (int r = 0; r < size_; ++r)
    if (r != rank_ && !(peers_[static_cast<size_t>(r)].*flag)) return false;
  return true;
}

void MpiJob::SetFailureTimeout(double seconds) { failure_timeout_ = seconds; }

// Looks after those that this rank has waited for for long.
void MpiJob::Watch(double now) {
  watch_->SetTimeout(failure_timeout_);
  if (now - watched_at_ >= watch_->pause()) {
    watched_at_ = now;
    Look(now);
  } else if (now < judges_at_) {
    return;
  }
  const std::optional<PeerWatch::Failed> failed = watch_->Judge(now);
  judges_at_ = watch_->NextJudgement();
  if (!failed) return;
  const auto& [verdict, ranks] = *failed;
  const int culprit = ranks.empty() ? rank_ : ranks[0];
  std::lock_guard lock(mutex_);
  if (ended_) return;
  has_judged_ = true;
  for (const int rank : ranks) peers_[static_cast<size_t>(rank)].Lose();
  EndLocked(
      culprit, [message = verdict.message, code = verdict.code] { throw Error(message, code); },
      FailureOf(culprit, verdict.message), !ranks.empty());
  Tell(EndNotice(Notice::kFailed));  // before others say the same
}

MpiJob::Notice MpiJob::EndNotice(Notice::Kind kind) const {
  Notice notice;
  notice.kind = kind;
  notice.culprit = culprit_;
  notice.is_lost = has_lost_;
  reason_.copy(notice.text, sizeof notice.text - 1);
  return notice;
}

void MpiJob::Look(double now) {
  std::shared_ptr<MpiOperation> longest;
  {
    std::lock_guard lock(mutex_);
    for (const auto& operation : outstanding_)
      if (operation->begun_at > 0 && (longest == nullptr || operation->begun_at < longest->begun_at))
        longest = operation;
  }
  std::optional<PeerWatch::Wait> wait;
  if (longest != nullptr && now - longest->begun_at > watch_->pause())
    wait = {longest->name, longest->begun_at, longest->MissingRanks(rank_)};
  Notice ask;
  ask.kind = Notice::kAsk;
  for (const int rank : watch_->Look(now, wait)) Send(ask, rank);
  if (const std::optional<std::string> remark = watch_->TakeRemark(now)) Remark(*remark);
}

void MpiJob::Answer(int rank) {
  Activity activity = ActivityOfProcess();
  activity.bytes += bytes_moved_;
  Notice notice;
  notice.kind = Notice::kAnswer;
  notice.report = watch_->Answer(Now(), rank, activity);
  Send(notice, rank);
}

void MpiJob::Send(const Notice& notice, int rank) {
  Sending& sending = telling_.emplace_back(notice, MPI_REQUEST_NULL);
  CheckMpi(MPI_Isend(&sending.notice, sizeof sending.notice, MPI_BYTE, rank, 0, notices_, &sending.request),
           "send");
}

void MpiJob::Tell(const Notice& notice) {
  to_tell_.push_back(notice);
  wake_.notify_one();
}

}  // namespace longspan
