// Threads that share loops. Work is taken in small chunks, so a thread whose core is needed elsewhere delays one chunk only.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace sapwood {

class ThreadPool {
   public:
    // `threads` in all, the caller's included.
    explicit ThreadPool(int threads);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int size() const { return int(workers_.size()) + 1; }

    // f(chunk, thread) for every chunk in 0 .. count - 1, on all threads; returns when all are done. One caller at a time.
    template <typename F>
    void run(int64_t count, F&& f) {
        run_erased(count, [](void* self, int64_t chunk, int thread) { (*static_cast<F*>(self))(chunk, thread); }, &f);
    }

   private:
    using Call = void (*)(void*, int64_t, int);

    void run_erased(int64_t count, Call call, void* self);
    void work(int thread);
    // Take chunks of the job with this number until there are none.
    void take_chunks(uint32_t job, int thread);

    // The job's number (24 bits), its count of chunks (20) and the next one to take (20), in one word: a claim is valid
    // by itself, whatever a slow thread remembers of earlier jobs.
    std::atomic<uint64_t> ticket_{0};
    std::atomic<uint32_t> job_{0};  // what waiting threads watch
    std::atomic<int64_t> left_{0};  // chunks not done yet
    std::atomic<Call> call_{nullptr};
    std::atomic<void*> self_{nullptr};
    std::atomic<bool> stopping_{false};
    std::vector<std::thread> workers_;
};

// Cores that this process may use.
int usable_cores();

}  // namespace sapwood
