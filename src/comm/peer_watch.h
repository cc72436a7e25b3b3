// The watch of a rank that is a process over those that it waits for: whether they are still there, and do
// something. It asks only those, some times in the timeout, and what they answer is how it knows; it knows
// nothing of how that gets there and back.
//
// A rank that waits itself does nothing, and is well as long as one of those that it waits for does
// something: so it answers with how long ago that was, and tells those who have asked as soon as it knows of
// anything later; that goes along a row of ranks, each of which waits for the one before it. Ranks that wait
// for each other in a circle all say the same, and nobody will ever do anything.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/operation_name.h"
#include "core/activity.h"

namespace longspan {

class PeerWatch {
 public:
  // What a rank answers.
  struct Report {
    Activity activity;  // of its process; bytes that its messages have moved as well
    double idle_seconds =
        -1;  // since one that it waits for was last known to do something; −1: it doesn't wait
    char waits_in[200] = {};  // the operation
  };
  // The operation of this rank that has been under way for longest.
  struct Wait {
    OperationName name;
    double begun_at = 0;       // by Now()
    std::vector<int> missing;  // whose part in it is
  };
  struct Failed {
    Verdict verdict;
    std::vector<int> ranks;  // that have failed; none if the fault is ours
  };

  PeerWatch(int rank, int size)
      : rank_(rank), size_(size), peers_(static_cast<size_t>(size)), askers_(static_cast<size_t>(size)) {}

  void SetTimeout(double seconds);
  double pause() const { return timeout_ / 8; }  // between two looks

  // Looks, once a pause. Returns whom to ask.
  std::vector<int> Look(double now, const std::optional<Wait>& wait);
  // A rank asks, and is answered; one that has been asked answers. The second returns whom to answer again.
  void HearAsked(double now, int from) { askers_[static_cast<size_t>(from)].asked_at = now; }
  std::vector<int> HearAnswer(double now, int from, const Report& report);
  Report Answer(double now, int to, const Activity& activity);

  // Whether ranks that are waited for have failed; not before NextJudgement. Ranks judge one after the other,
  // so that the first can tell the others.
  std::optional<Failed> Judge(double now) const;
  double NextJudgement() const;
  // After a look: what is to be said of a wait that is long, by this rank, and only once.
  std::optional<std::string> TakeRemark(double now);

 private:
  struct Peer {
    double active_at = 0;    // when it was last known to do something
    double answered_at = 0;  // 0: not yet, since it is waited for
    double compared_at = 0;
    Activity compared;  // what its activity is compared with, of then
    bool waits = false;
    std::string waits_in;
  };
  struct Asker {
    double asked_at = 0;
    double told_at = 0;  // it knows of what was done until then
  };
  double LastActive() const;               // of those that are waited for
  double JudgedAt(const Peer& its) const;  // if it does nothing more
  Peer& peer(int rank) { return peers_[static_cast<size_t>(rank)]; }
  const Peer& peer(int rank) const { return peers_[static_cast<size_t>(rank)]; }

  const int rank_, size_;
  double timeout_ = 60;
  double looked_at_ = 0;
  std::optional<Wait> wait_;
  std::vector<Peer> peers_;    // by rank, as is
  std::vector<Asker> askers_;  // this
  bool has_remarked_ = false;
};

}  // namespace longspan
