// The card's memory, streams and events, without torch.
//
// Memory is a memfd mapped twice. Tensors know the view that the host cannot touch; kernels use the other one. Fresh
// memory is full of 0xff, which is NaN in every floating-point type.
//
// A kernel runs at once. An asynchronous copy is done as late as the rules allow:
//   host → card    when work that has to come after it touches its target, so a source that is overwritten is noticed
//   card → host    when the host waits for it; until then its target is NaN
// Work comes after a copy if it is given to the same stream, or to one that has waited for it (`knows`). Other work
// sees memory without it. What a kernel has written must not be read from a stream that does not know it: an error.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

namespace card {

using Clock = std::chrono::steady_clock;

struct Stream;
using Progress = std::map<Stream*, long>;  // stream → how many of its operations

struct Range {
  char* start;
  size_t bytes;
  bool overlaps(const Range& other) const {
    return start < other.start + other.bytes && other.start < start + bytes;
  }
};

struct Copy {
  long number;  // of the stream's operations
  long time;    // of all copies, in the order in which they were given
  bool to_card;
  Range card, host;
  std::vector<char> taken;  // its bytes, if the source has been freed or overwritten by work that comes after it
};

struct Stream {
  int device = 0;
  long issued = 0;      // operations given to it
  long host_knows = 0;  // those for which the host has waited
  Progress knows;       // other streams' operations that its next one comes after
  std::list<Copy> late; // copies not done yet
  Clock::time_point busy_until;
};

struct Event {
  Stream* stream = nullptr;
  Progress knows;  // with the stream's own operations
  Clock::time_point busy_until;
};

struct Write {
  Range range;
  Stream* writer;
  long number;  // of the kernel in its stream
};

struct Block {
  size_t bytes;
  Stream* owner;              // that allocated it
  std::vector<Write> writes;  // the last ones, as far as no later one covers them
};

struct Counts {
  long bytes_in = 0, bytes_out = 0, late_in = 0, late_out = 0, kernels = 0, stream_waits = 0, device_waits = 0;
};

inline std::recursive_mutex mutex;
using Lock = std::lock_guard<std::recursive_mutex>;
inline Counts counts;

inline void raise(const char* message) { throw std::runtime_error(std::string("card: ") + message); }

inline long from_environment(const char* name, long otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atol(text) : otherwise;
}

inline int devices() {
  static int found = from_environment("FARANDOLE_TEST_CARDS", 2);
  return found;
}

// Memory of all cards. Made at the first use, since forks must not share it.
class Memory {
 public:
  static constexpr size_t capacity = size_t(1) << 32, alignment = 64;

  Range allocate(size_t bytes, Stream& stream) {
    bytes = (bytes + alignment - 1) / alignment * alignment;
    auto& freed = free_[{&stream, bytes}];
    char* start = freed.empty() ? protected_ + used_ : freed.back();
    if (freed.empty()) {
      if (used_ + bytes > capacity) raise("out of memory");
      used_ += bytes;
    } else {
      freed.pop_back();
    }
    blocks_[start] = {bytes, &stream, {}};
    return {start, bytes};
  }

  void release(char* start) {
    auto found = blocks_.find(start);
    free_[{found->second.owner, found->second.bytes}].push_back(start);
    blocks_.erase(found);
  }

  char* for_kernels(const void* address) const { return view_ + (static_cast<const char*>(address) - protected_); }

  Block* block(const void* address) {
    auto next = blocks_.upper_bound(const_cast<char*>(static_cast<const char*>(address)));
    return next == blocks_.begin() ? nullptr : &std::prev(next)->second;
  }

 private:
  char* protected_;
  char* view_;
  size_t used_ = 0;
  std::map<char*, Block> blocks_;
  std::map<std::pair<Stream*, size_t>, std::vector<char*>> free_;

  friend Memory& memory();
  Memory() {
    int file = memfd_create("card for tests", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, capacity)) raise("no memory file");
    protected_ = map(file, PROT_NONE);
    view_ = map(file, PROT_READ | PROT_WRITE);
    close(file);
  }
  static char* map(int file, int protection) {
    void* found = mmap(nullptr, capacity, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (found == MAP_FAILED) raise("no address space");
    return static_cast<char*>(found);
  }
};

inline Memory& memory() {
  static Memory* made = new Memory;  // never destroyed: tensors may outlive static objects
  return *made;
}

inline std::map<std::pair<int, long>, Stream>& streams() {
  static auto* made = new std::map<std::pair<int, long>, Stream>;
  return *made;
}

inline Stream& stream(int device, long id) {
  Lock lock(mutex);
  Stream& found = streams()[{device, id}];
  found.device = device;
  return found;
}

// The copies of `stream`, and of those it has waited for, that come before its next operation.
template <typename Do>
void for_each_before(Stream& stream, Do&& action) {
  Progress before = stream.knows;
  before[&stream] = stream.issued;
  for (auto& [other, count] : before)
    for (auto copy = other->late.begin(); copy != other->late.end() && copy->number <= count;)
      copy = action(*copy) ? other->late.erase(copy) : std::next(copy);
}

inline void carry_out(Copy& copy) {
  char* on_card = memory().for_kernels(copy.card.start);
  char* source = copy.to_card ? copy.host.start : on_card;
  char* target = copy.to_card ? on_card : copy.host.start;
  std::memcpy(target, copy.taken.empty() ? source : copy.taken.data(), copy.host.bytes);
}

inline void take(Copy& copy) {
  char* source = copy.to_card ? copy.host.start : memory().for_kernels(copy.card.start);
  if (copy.taken.empty()) copy.taken.assign(source, source + copy.host.bytes);
}

// The next operation of `stream` uses this memory of the host: earlier copies from and to it come first.
inline void settle_on_host(Stream& stream, const Range& range) {
  for_each_before(stream, [&](Copy& copy) {
    bool uses = copy.host.overlaps(range);
    if (uses) carry_out(copy);
    return uses;
  });
}

// The next operation of `stream` uses this memory of the card: earlier copies see it as it was.
inline void settle_on_card(Stream& stream, const Range& range) {
  for_each_before(stream, [&](Copy& copy) {
    if (!copy.card.overlaps(range)) return false;
    if (copy.to_card) {
      carry_out(copy);
      return true;
    }
    take(copy);
    return false;
  });
}

// The kernels that write to this memory, of those for which the host has not waited.
inline std::vector<Write> unfinished(const Range& range) {
  std::vector<Write> found;
  if (Block* block = memory().block(range.start))
    for (const Write& write : block->writes)
      if (write.range.overlaps(range) && write.writer->host_knows < write.number) found.push_back(write);
  return found;
}

inline void reads(Stream& stream, const Range& range) {
  Lock lock(mutex);
  settle_on_card(stream, range);
  for (const Write& write : unfinished(range)) {
    auto known = stream.knows.find(write.writer);
    if (write.writer != &stream && (known == stream.knows.end() || known->second < write.number))
      raise("a stream reads what a kernel of another stream writes, and has not waited for it");
  }
}

inline void has_written(Stream& stream, const Range& range) {
  if (Block* block = memory().block(range.start)) {
    std::erase_if(block->writes, [&](const Write& write) {
      return write.range.start >= range.start && write.range.start + write.range.bytes <= range.start + range.bytes;
    });
    block->writes.push_back({range, &stream, stream.issued});
  }
}

// The memory as a library sees it that reads it on the card, as a CUDA-aware MPI does; null: a kernel or a copy that
// writes it may still run, or a copy reads it.
inline char* for_library(const Range& range) {
  Lock lock(mutex);
  for (auto& [key, each] : streams())
    for (const Copy& copy : each.late)
      if (copy.card.overlaps(range)) return nullptr;
  return unfinished(range).empty() ? memory().for_kernels(range.start) : nullptr;
}

inline Range allocate(size_t bytes, Stream& stream) {
  Lock lock(mutex);
  Range range = memory().allocate(bytes, stream);
  settle_on_card(stream, range);  // the copies of its former owner
  std::memset(memory().for_kernels(range.start), 0xff, range.bytes);
  return range;
}

inline void begin_copy(Stream& stream, bool to_card, Range card, Range host) {
  settle_on_host(stream, host);
  if (!to_card) {
    reads(stream, card);
    std::memset(host.start, 0xff, host.bytes);
  }
  static long time = 0;
  stream.late.push_back({++stream.issued, ++time, to_card, card, host, {}});
  (to_card ? counts.late_in : counts.late_out)++;
}

// The host frees this memory: copies from it keep their bytes, and what is copied to it nobody can see.
inline void host_frees(const Range& range) {
  for (auto& [key, each] : streams())
    each.late.remove_if([&](Copy& copy) {
      bool uses = copy.host.overlaps(range);
      if (uses && copy.to_card) take(copy);
      return uses && !copy.to_card;
    });
}

// A kernel has been given to the stream: the card is busy with it for a while.
inline void launched(Stream& stream) {
  static auto duration = std::chrono::microseconds(from_environment("FARANDOLE_TEST_CARD_KERNEL_US", 0));
  counts.kernels++;
  stream.issued++;
  stream.busy_until = std::max(Clock::now(), stream.busy_until) + duration;
}

inline Event record(Stream& stream) {
  Lock lock(mutex);
  Event event{&stream, stream.knows, stream.busy_until};
  event.knows[&stream] = stream.issued;
  return event;
}

inline void wait(Stream& stream, const Event& event) {
  Lock lock(mutex);
  for (auto& [other, count] : event.knows)
    if (other != &stream) stream.knows[other] = std::max(stream.knows[other], count);
  stream.busy_until = std::max(stream.busy_until, event.busy_until);
}

// The host waits for the event: its copies are done when this returns.
inline void synchronise(const Event& event) {
  {
    Lock lock(mutex);
    std::list<Copy> due;
    for (auto& [other, count] : event.knows) {
      auto& late = other->late;
      auto end = std::find_if(late.begin(), late.end(), [&](Copy& copy) { return copy.number > count; });
      due.splice(due.end(), late, late.begin(), end);
      other->host_knows = std::max(other->host_knows, count);
    }
    due.sort([](const Copy& a, const Copy& b) { return a.time < b.time; });
    for (Copy& copy : due) carry_out(copy);
  }
  std::this_thread::sleep_until(event.busy_until);
}

inline void synchronise_device(int device) {
  Event all;
  {
    Lock lock(mutex);
    for (auto& [key, each] : streams())
      if (key.first == device) {
        all.knows[&each] = each.issued;
        all.busy_until = std::max(all.busy_until, each.busy_until);
      }
  }
  synchronise(all);
}

}  // namespace card
