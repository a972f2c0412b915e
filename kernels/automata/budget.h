// What a grammar may cost. Every automaton is built lazily and charges its work here; the charge that crosses a limit
// throws, and only the request that asked for it fails.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <stdexcept>

namespace sapwood {

struct OverBudget : std::runtime_error {
    using std::runtime_error::runtime_error;
};

class Budget {
public:
    explicit Budget(std::size_t max_bytes) : max_bytes_(max_bytes) {}

    // Memory that stays with the grammar.
    void charge_bytes(std::size_t bytes) {
        bytes_ += bytes;
        if (bytes_ > max_bytes_) throw OverBudget("the grammar's automata need more memory than the limit");
        tick(bytes / 64 + 1);
    }

    // Work; the clock is read once in a while.
    void tick(std::size_t steps = 1) {
        ticks_ += steps;
        if (ticks_ < next_look_) return;
        next_look_ = ticks_ + 4096;
        if (stop_ && *stop_) throw OverBudget("the compile was cancelled");
        if (limited_ && std::chrono::steady_clock::now() > deadline_)
            throw OverBudget("the grammar takes longer than the time limit");
    }

    // `stop` may be set by another thread; it ends with the next start.
    void start(double seconds, std::shared_ptr<std::atomic<bool>> stop = nullptr) {
        limited_ = true;
        stop_ = std::move(stop);
        deadline_ = std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                                           std::chrono::duration<double>(seconds));
    }

    std::size_t bytes() const { return bytes_; }

private:
    std::size_t max_bytes_, bytes_ = 0, ticks_ = 0, next_look_ = 0;
    bool limited_ = false;
    std::shared_ptr<std::atomic<bool>> stop_;
    std::chrono::steady_clock::time_point deadline_;
};

}  // namespace sapwood
