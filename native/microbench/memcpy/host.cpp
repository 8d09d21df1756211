#include "memcpy/host.h"

#include <cstring>

#include "clock.h"
#include "host_machine.h"
#include "large_count.h"
#include "memcpy/check.h"

namespace collscope {

namespace {

// Wishes, and the kinds of rows that are made of them.
constexpr char time_open = 'o';
constexpr char time_close = 'c';
constexpr char time_copy_open = 'w';  // open, copy, close
constexpr char open_window = 'O';
constexpr char look_into_window = 'L';
constexpr char close_window = 'C';
constexpr char send = 's';

constexpr double slack = 1.1;  // of memory, for everything else

// Keeps the compiler from leaving out copies whose result nobody reads.
void keep(const void* memory) { asm volatile("" : : "r"(memory) : "memory"); }

}  // namespace

Status SharedWindow::open(MPI_Comm comm, std::uint64_t size_bytes) {
    int process = 0;
    MPI_Comm_rank(comm, &process);
    void* mine = nullptr;
    const auto bytes = static_cast<MPI_Aint>(process == 1 ? size_bytes : 0);
    Status status =
        mpi_status(MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, comm, &mine, &window_),
                   "MPI_Win_allocate_shared");
    if (!status.ok()) {
        return status;
    }
    MPI_Aint size = 0;
    int unit = 0;
    void* found = nullptr;
    status =
        mpi_status(MPI_Win_shared_query(window_, 1, &size, &unit, &found), "MPI_Win_shared_query");
    data_ = static_cast<std::byte*>(found);
    return status.ok() ? mpi_status(MPI_Win_lock_all(MPI_MODE_NOCHECK, window_), "MPI_Win_lock_all")
                       : status;
}

Status SharedWindow::sync() const { return mpi_status(MPI_Win_sync(window_), "MPI_Win_sync"); }

Status SharedWindow::close() {
    const Status status = mpi_status(MPI_Win_unlock_all(window_), "MPI_Win_unlock_all");
    const Status freed = mpi_status(MPI_Win_free(&window_), "MPI_Win_free");
    return status.ok() ? freed : status;
}

HostCopies::HostCopies(const CopyOptions& options, const Control& control, CopyRows& rows)
    : options_(options), control_(control), rows_(rows), partner_(control) {
    MPI_Comm_dup(MPI_COMM_WORLD, &comm_);
    // What does not fit is a row of its own, not the end.
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
}

HostCopies::~HostCopies() { MPI_Comm_free(&comm_); }

void HostCopies::run(std::uint64_t size_bytes) {
    size_ = size_bytes;
    const int here = control_.processes_on_host();
    Status mine = send_.allocate(size_bytes, 2 * here);
    if (mine.ok()) {
        mine = recv_.allocate(size_bytes, here);
    }
    const Status all = control_.agree(mine);
    if (!all.ok()) {
        refuse_all(refusal_of(all, true));
        return;
    }
    if (control_.writer()) {
        measure_all();
        partner_.dismiss();
    } else {
        partner_.serve([this](const Wish& wish, std::uint64_t& n_wrong) {
            double us = 0;
            return part(wish, us, n_wrong);
        });
    }
}

std::vector<HostCopies::Kind> HostCopies::kinds() const {
    std::vector<Kind> out;
    if (options_.groups.within) {
        out.push_back({"memcpy", Timing::Batch, 0});
    }
    if (options_.groups.ipc) {
        out.insert(out.end(), {{"window_open", Timing::Isolated, time_open},
                               {"window_close", Timing::Isolated, time_close},
                               {"window_sync", Timing::Batch, open_window},
                               {"window_sync_open", Timing::Isolated, time_copy_open}});
    }
    if (options_.groups.peer) {
        out.insert(out.end(), {{"send_recv_async", Timing::Batch, send},
                               {"send_recv_sync", Timing::Isolated, send}});
    }
    return out;
}

// Why a kind cannot be measured here.
Refusal HostCopies::refusal(const Kind& kind) const {
    if (kind.wish == 0) {
        return {};
    }
    if (control_.processes() < 2) {
        return {"skipped", "it needs two processes", false};
    }
    if (kind.wish == send) {
        return {};
    }
    if (control_.processes_on_host() < 2) {
        return {"skipped", "the two processes run on different hosts", false};
    }
    const std::size_t free = shareable_bytes();
    if (static_cast<double>(size_) * slack > static_cast<double>(free)) {
        return {"failed",
                "out of shared memory: " + std::to_string(size_) + " bytes wanted, " +
                    std::to_string(free) + " are there in /dev/shm",
                true};
    }
    return {};
}

void HostCopies::refuse_all(const Refusal& why) {
    for (const Kind& kind : kinds()) {
        rows_.refuse(rows_.make(kind.name, size_), why);
    }
}

void HostCopies::measure_all() {
    for (const Kind& kind : kinds()) {
        CopyRow row = rows_.make(kind.name, size_);
        row.carries = kind.wish != time_open && kind.wish != time_close;
        if (const Refusal why = refusal(kind); !why.status.empty()) {
            rows_.refuse(std::move(row), why);
        } else if (kind.wish == 0) {
            rows_.measure(std::move(row), copies_into(kind.timing, recv_.data()));
        } else if (kind.wish == open_window) {
            window_rows(std::move(row), kind.timing);
        } else {
            rows_.measure(std::move(row), both_do(kind));
        }
    }
}

// memcpy by this process alone.
Timed HostCopies::copies_into(Timing timing, std::byte* to) {
    const auto run = [this, to](int calls, double& us) {
        const double begin = steady_us();
        for (int i = 0; i < calls; ++i) {
            std::memcpy(to, send_.data(), size_);
            keep(to);
        }
        us = (steady_us() - begin) / calls;
        return Status{};
    };
    const auto check = [this, to, run](std::uint64_t& n_wrong) {
        const std::uint64_t seed = fill();
        double us = 0;
        run(1, us);
        return look(to, seed, n_wrong);
    };
    return {timing, run, check};
}

// Copies into a window that stays open.
void HostCopies::window_rows(CopyRow row, Timing timing) {
    double us = 0;
    std::uint64_t none = 0;
    const Status opened = ask({open_window, 1, 0}, us, none);
    if (!opened.ok()) {
        rows_.refuse(std::move(row), refusal_of(opened));
        return;
    }
    Timed timed = copies_into(timing, window_.data());
    timed.check = [this, &timed](std::uint64_t& n_wrong) {
        const std::uint64_t seed = fill();
        double ignored = 0;
        timed.run(1, ignored);
        const Status status = window_.sync();
        return status.ok() ? ask({look_into_window, 1, seed}, ignored, n_wrong) : status;
    };
    rows_.measure(std::move(row), timed);
    ask({close_window, 1, 0}, us, none);
}

Timed HostCopies::both_do(const Kind& kind) {
    Timed timed{kind.timing,
                [this, kind](int calls, double& us) {
                    std::uint64_t none = 0;
                    return ask({kind.wish, calls, 0}, us, none);
                },
                {}};
    if (kind.wish == time_copy_open || kind.wish == send) {
        timed.check = [this, kind](std::uint64_t& n_wrong) {
            double us = 0;
            return ask({kind.wish, 1, fill()}, us, n_wrong);
        };
    }
    return timed;
}

Status HostCopies::ask(const Wish& wish, double& us, std::uint64_t& n_wrong) {
    const auto mine = [this, &us](const Wish& w, std::uint64_t& wrong) {
        return part(w, us, wrong);
    };
    return partner_.together(wish, mine, n_wrong);
}

// A seed means: check what arrived.
Status HostCopies::part(const Wish& wish, double& us, std::uint64_t& n_wrong) {
    const bool receives = !control_.writer();
    Status status;
    switch (wish.what) {
        case time_open:
        case time_close:
        case time_copy_open:
            return windows(wish, us, n_wrong);
        case send:
            status = transfers(wish.calls, us);
            return status.ok() && receives && wish.seed != 0
                       ? look(recv_.data(), wish.seed, n_wrong)
                       : status;
        case open_window:
            return window_.open(comm_, size_);
        case close_window:
            return window_.close();
        case look_into_window:
            status = receives ? window_.sync() : Status{};
            return status.ok() && receives ? look(window_.data(), wish.seed, n_wrong) : status;
        default:
            return {"an unknown wish"};
    }
}

Status HostCopies::windows(const Wish& wish, double& us, std::uint64_t& n_wrong) {
    us = 0;
    for (int i = 0; i < wish.calls; ++i) {
        MPI_Barrier(comm_);
        const double begin = steady_us();
        Status status = window_.open(comm_, size_);
        const double opened = steady_us();
        if (!status.ok()) {
            return status;
        }
        if (wish.what == time_copy_open && control_.writer()) {
            std::memcpy(window_.data(), send_.data(), size_);
            status = window_.sync();
        }
        if (wish.seed != 0) {
            MPI_Barrier(comm_);
            if (!control_.writer()) {
                status = window_.sync();
                status = status.ok() ? look(window_.data(), wish.seed, n_wrong) : status;
            }
        }
        const double closing = steady_us();
        const Status closed = window_.close();
        const double end = steady_us();
        const double took = wish.what == time_open    ? opened - begin
                            : wish.what == time_close ? end - closing
                                                      : end - begin;
        us += took / wish.calls;
        if (!status.ok() || !closed.ok()) {
            return status.ok() ? closed : status;
        }
    }
    return {};
}

// Messages back to back; the last is answered, so that the sender knows when all have arrived.
Status HostCopies::transfers(int calls, double& us) {
    const bool sends = control_.writer();
    const int peer = sends ? 1 : 0;
    MPI_Barrier(comm_);
    const double begin = steady_us();
    int code = MPI_SUCCESS;
    for (int i = 0; i <= calls && code == MPI_SUCCESS; ++i) {
        const bool answer = i == calls;
        const std::uint64_t bytes = answer ? 0 : size_;
        MPI_Request request = MPI_REQUEST_NULL;
        code = sends != answer ? mpi::isend(send_.data(), bytes, peer, comm_, request)
                               : mpi::irecv(recv_.data(), bytes, peer, comm_, request);
        if (code == MPI_SUCCESS) {
            code = MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
    }
    us = (steady_us() - begin) / calls;
    return mpi_status(code, "MPI_Send");
}

// The source begins a check with bytes that nothing has held before.
std::uint64_t HostCopies::fill() {
    ++seed_;
    write_pattern(seed_, size_, [this](const Block& block, std::vector<std::byte>& host) {
        std::memcpy(send_.data() + block.offset, host.data(), block.bytes);
        return Status{};
    });
    return seed_;
}

Status HostCopies::look(const std::byte* memory, std::uint64_t seed, std::uint64_t& n_wrong) const {
    const auto read = [memory](const Block& block, std::vector<std::byte>& host) {
        std::memcpy(host.data(), memory + block.offset, block.bytes);
        return Status{};
    };
    return count_wrong(seed, size_, read, n_wrong);
}

}  // namespace collscope
