#include "pool.h"

#include <algorithm>
#include <chrono>

#if defined(__linux__)
#include <sched.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sapwood {
namespace {

constexpr uint64_t kCountBits = 20;
constexpr uint64_t kMask = (uint64_t(1) << kCountBits) - 1;
constexpr auto kSpin = std::chrono::microseconds(60);  // how long a thread waits awake

inline void pause() {
#if defined(__x86_64__)
    _mm_pause();
#endif
}

// Spin until ready() holds, for a bounded time. False: it doesn't yet.
template <typename Ready>
bool spin(Ready ready) {
    const auto until = std::chrono::steady_clock::now() + kSpin;
    do {
        for (int i = 0; i < 64; ++i) {
            if (ready()) return true;
            pause();
        }
    } while (std::chrono::steady_clock::now() < until);
    return ready();
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
    for (int thread = 1; thread < threads; ++thread) workers_.emplace_back([this, thread] { work(thread); });
}

ThreadPool::~ThreadPool() {
    stopping_.store(true, std::memory_order_release);
    job_.fetch_add(1, std::memory_order_acq_rel);
    job_.notify_all();
    for (auto& worker : workers_) worker.join();
}

void ThreadPool::run_erased(int64_t count, Call call, void* self) {
    if (workers_.empty() || count <= 1) {
        for (int64_t chunk = 0; chunk < count; ++chunk) call(self, chunk, 0);
        return;
    }
    call_.store(call, std::memory_order_relaxed);
    self_.store(self, std::memory_order_relaxed);
    left_.store(count, std::memory_order_relaxed);
    const uint32_t job = (job_.load(std::memory_order_relaxed) + 1) & 0xffffff;
    ticket_.store(uint64_t(job) << (2 * kCountBits) | uint64_t(count) << kCountBits, std::memory_order_release);
    job_.store(job, std::memory_order_release);
    job_.notify_all();
    take_chunks(job, 0);
    if (!spin([this] { return left_.load(std::memory_order_acquire) == 0; }))
        for (int64_t left; (left = left_.load(std::memory_order_acquire)) != 0;) left_.wait(left, std::memory_order_acquire);
}

void ThreadPool::work(int thread) {
    uint32_t seen = 0;
    while (true) {
        if (!spin([&] { return job_.load(std::memory_order_acquire) != seen; })) job_.wait(seen, std::memory_order_acquire);
        seen = job_.load(std::memory_order_acquire);
        if (stopping_.load(std::memory_order_acquire)) return;  // after `seen`, or a stop in between would never be seen
        take_chunks(seen, thread);
    }
}

void ThreadPool::take_chunks(uint32_t job, int thread) {
    while (true) {
        // A look first: threads that come late must not count up the tickets of a job that they don't know.
        const uint64_t now = ticket_.load(std::memory_order_acquire);
        if (uint32_t(now >> (2 * kCountBits)) != job || (now & kMask) >= (now >> kCountBits & kMask)) return;
        uint64_t claimed = now;
        if (!ticket_.compare_exchange_weak(claimed, now + 1, std::memory_order_acq_rel)) continue;
        const Call call = call_.load(std::memory_order_relaxed);
        call(self_.load(std::memory_order_relaxed), int64_t(now & kMask), thread);
        if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1 && thread != 0) left_.notify_one();
    }
}

int usable_cores() {
#if defined(__linux__)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
    return std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace sapwood
