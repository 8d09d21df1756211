// The thread that writes: it takes records from the ring, makes one of a span's start and end, and
// hands them to the file with write, never by a mapping: a full disk is an error code here, and
// what was written is in the file whatever ends the process.
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>
#include <unordered_map>
#include <vector>

#include "recorder.h"

namespace collscope::recorder {

std::uint32_t crc32(const void* data, std::size_t size) {
    static const auto table = [] {
        std::array<std::uint32_t, 256> made{};
        for (std::uint32_t i = 0; i < made.size(); ++i) {
            std::uint32_t value = i;
            for (int bit = 0; bit < 8; ++bit) {
                value = value >> 1 ^ (value & 1u ? 0xedb88320u : 0u);
            }
            made[i] = value;
        }
        return made;
    }();
    const auto* bytes = static_cast<const unsigned char*>(data);
    std::uint32_t value = 0xffffffffu;
    for (std::size_t i = 0; i < size; ++i) {
        value = table[(value ^ bytes[i]) & 0xffu] ^ value >> 8;
    }
    return value ^ 0xffffffffu;
}

namespace {

constexpr std::uint64_t second_ns = 1'000'000'000;
constexpr timespec pause{0, 10'000'000};
constexpr std::uint64_t open_span_ns = 50'000'000;  // after which a span is written without its end
constexpr std::size_t most_open = 1 << 16;
constexpr std::size_t write_bytes = 1 << 18;
constexpr std::size_t most_waiting_bytes = 1 << 22;  // while the file takes nothing
constexpr std::uint32_t segments = 8;                // kept of a process
constexpr int idle_seconds = 10;                     // between records of cost

class Writer {
public:
    explicit Writer(Recorder& recorder)
        : recorder_(recorder), token_(real_ns()), host_(host_name()) {
        waiting_.reserve(write_bytes + sizeof(Cell));
    }

    [[noreturn]] void run() {
        std::uint64_t next_second = monotonic_ns() + second_ns;
        for (;;) {
            const std::uint64_t wanted = recorder_.flush_wanted.load(std::memory_order_acquire);
            take();
            const std::uint64_t now = monotonic_ns();
            recorder_.disarm_idle();
            write_open_spans(now);
            if (now >= next_second || wanted != recorder_.flush_done.load()) {
                next_second = now + second_ns;
                each_second(now, wanted != recorder_.flush_done.load());
            }
            write();
            recorder_.flush_done.store(wanted, std::memory_order_release);
            nanosleep(&pause, nullptr);
        }
    }

private:
    struct Open {
        Cell cell;
        bool written;
    };

    void take() {
        while (const Cell* cell = recorder_.ring.peek()) {
            callbacks_ += cell->of_callback;
            callback_ns_ += cell->spent_ns;
            keep(*cell);
            recorder_.ring.release();
        }
    }

    void keep(const Cell& cell) {
        switch (cell.header.kind) {
            case kernel_record:
            case phase_record:
            case proxy_record:
                start(cell);
                break;
            case stopped_span:
                stop(body_of<StopBody>(cell));
                break;
            default:
                append(cell);
        }
    }

    // Every body of a span begins with SpanBody.
    void start(const Cell& cell) {
        const auto key = body_of<SpanBody>(cell).stopped_ns;
        Cell kept = cell;
        put_span(kept, 0, 0);
        if (open_.size() >= most_open) {
            append(kept);
            return;
        }
        open_.insert_or_assign(key, Open{kept, false});
    }

    void stop(const StopBody& body) {
        const auto found = open_.find(body.key);
        if (found == open_.end()) {
            ++unwritten_;
            return;
        }
        put_span(found->second.cell, body.stop, body.stopped_ns);
        append(found->second.cell);
        open_.erase(found);
    }

    static void put_span(Cell& cell, std::uint64_t stop, std::uint64_t stopped_ns) {
        auto span = body_of<SpanBody>(cell);
        span.stop = stop;
        span.stopped_ns = stopped_ns;
        std::memcpy(cell.body, &span, sizeof span);
    }

    void write_open_spans(std::uint64_t now) {
        for (auto& [key, open] : open_) {
            if (!open.written && now > body_of<SpanBody>(open.cell).started_ns + open_span_ns) {
                open.written = true;
                append(open.cell);
            }
        }
    }

    void each_second(std::uint64_t now, bool always) {
        if (!recorder_.settings.control.empty()) {
            recorder_.set_level(controlled_level());
        }
        if (always || callbacks_ != told_callbacks_ || ++idle_ >= idle_seconds) {
            told_callbacks_ = callbacks_;
            idle_ = 0;
            append(cell_of(
                cost_record, 0, 0,
                CostBody{real_ns(), now, callbacks_, callback_ns_ + recorder_.ring.dropped_ns(),
                         thread_cpu_ns(), recorder_.ring.dropped(), unwritten_, written_bytes_}));
        }
    }

    // The level that the control file holds; that of the start where it holds none.
    Level controlled_level() const {
        std::array<char, 16> text{};
        if (std::FILE* file = std::fopen(recorder_.settings.control.c_str(), "re")) {
            if (std::fscanf(file, "%15s", text.data()) != 1) {
                text[0] = '\0';
            }
            std::fclose(file);
        }
        return level_of(text.data(), recorder_.settings.level);
    }

    void append(const Cell& cell) {
        if (file_ >= 0) {
            rotate();
        }
        if (file_ < 0 && !open_file()) {
            ++ordinal_;
            ++unwritten_;
            return;
        }
        name_what(cell);
        add(cell.header, cell.body);
    }

    // What a record names stands before it in the same file.
    void name_what(const Cell& cell) {
        if (cell.header.comm > comms_) {
            for (const CommFacts& comm : recorder_.comms_after(comms_)) {
                add_comm(comm);
            }
        }
        if (cell.header.kind == api_record) {
            const auto body = body_of<ApiBody>(cell);
            add_names({body.func, body.datatype});
        } else if (cell.header.kind == call_record) {
            const auto body = body_of<CallBody>(cell);
            add_names({body.func, body.datatype, body.algorithm, body.protocol, body.variant});
        }
    }

    void add_names(std::initializer_list<std::uint8_t> numbers) {
        for (const std::uint8_t number : numbers) {
            if (number != 0 && !names_[number]) {
                names_[number] = true;
                add_text(name_record, number, 0, {}, recorder_.names.name(number));
            }
        }
    }

    void add_comm(const CommFacts& comm) {
        comms_ = comm.number;
        const CommBody body{comm.hash,   comm.opened_ns, comm.rank,
                            comm.nranks, comm.nnodes,    comm.device.number};
        add_text(comm_record, 0, comm.number, bytes_of(body),
                 comm.name + '\0' + comm.device.bus_id + '\0' + comm.device.name);
    }

    template <typename Body>
    static std::string bytes_of(const Body& body) {
        return {reinterpret_cast<const char*>(&body), sizeof body};
    }

    void add_text(Kind kind, std::uint8_t small, std::uint32_t comm, std::string body,
                  const std::string& text) {
        body += text.substr(0, 1024);
        body += '\0';
        body.resize((body.size() + 7) / 8 * 8);
        add({0, static_cast<std::uint16_t>(sizeof(Header) + body.size()), kind, small, 0, comm},
            reinterpret_cast<const unsigned char*>(body.data()));
    }

    void add(Header header, const unsigned char* body) {
        header.ordinal = ordinal_++;
        if (waiting_.size() + header.size > most_waiting_bytes) {
            ++unwritten_;
            return;
        }
        const std::size_t at = waiting_.size();
        waiting_.resize(at + header.size);
        std::memcpy(&waiting_[at], &header, sizeof header);
        std::memcpy(&waiting_[at + sizeof header], body, header.size - sizeof header);
        header.check =
            crc32(&waiting_[at + sizeof header.check], header.size - sizeof header.check);
        std::memcpy(&waiting_[at], &header.check, sizeof header.check);
        if (waiting_.size() >= write_bytes) {
            write();
        }
    }

    std::string path(std::uint32_t segment) const {
        std::array<char, 64> rest{};
        std::snprintf(rest.data(), rest.size(), ".%d.%" PRIx64 ".%" PRIu32 ".collrec", getpid(),
                      token_, segment);
        return recorder_.settings.folder + "/" + host_ + rest.data();
    }

    bool open_file() {
        const std::uint64_t now = monotonic_ns();
        if (now < next_try_ns_) {
            return false;
        }
        mkdir(recorder_.settings.folder.c_str(), 0777);
        file_ = ::open(path(segment_).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file_ < 0) {
            next_try_ns_ = now + second_ns;
            return false;
        }
        waiting_.assign(magic.begin(), magic.end());
        offset_ = 0;
        names_.fill(false);
        comms_ = 0;
        const FileBody body{real_ns(),
                            monotonic_ns(),
                            static_cast<std::uint64_t>(getpid()),
                            token_,
                            segment_,
                            static_cast<std::uint32_t>(recorder_.version),
                            world_size(),
                            recorder_.hip ? 1u : 0u};
        add_text(file_record, static_cast<std::uint8_t>(recorder_.interface), 0, bytes_of(body),
                 host_ + '\0' + name_of(recorder_.settings.level) + '\0' + recorder_.settings.why +
                     '\0' + world_rank());
        return true;
    }

    void write() {
        std::size_t done = 0;
        while (file_ >= 0 && done < waiting_.size()) {
            const ssize_t count =
                pwrite(file_, &waiting_[done], waiting_.size() - done, static_cast<off_t>(offset_));
            if (count < 0 && errno == EINTR) {
                continue;
            }
            if (count <= 0) {
                break;  // tried again with what comes next
            }
            done += static_cast<std::size_t>(count);
            offset_ += static_cast<std::uint64_t>(count);
            written_bytes_ += static_cast<std::uint64_t>(count);
        }
        waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(done));
    }

    // Begins another file where this one is as large as it may be, and forgets the oldest.
    void rotate() {
        if (offset_ + waiting_.size() < recorder_.settings.max_bytes / segments) {
            return;
        }
        write();
        if (!waiting_.empty()) {
            return;  // the file takes nothing at present
        }
        const Cell end = cell_of(end_record, 1, 0, EndBody{monotonic_ns()});
        add(end.header, end.body);
        write();
        ::close(file_);
        file_ = -1;
        if (++segment_ >= segments) {
            unlink(path(segment_ - segments).c_str());
        }
    }

    Recorder& recorder_;
    const std::uint64_t token_;
    const std::string host_;
    std::vector<unsigned char> waiting_;  // what the file has not taken yet
    std::unordered_map<std::uint64_t, Open> open_;
    int file_ = -1;
    std::uint64_t offset_ = 0;
    std::uint32_t segment_ = 0;
    std::uint64_t next_try_ns_ = 0;
    std::uint32_t ordinal_ = 0;
    std::array<bool, Names::most + 1> names_{};
    std::uint32_t comms_ = 0;
    std::uint64_t unwritten_ = 0;
    std::uint64_t written_bytes_ = 0;
    std::uint64_t callbacks_ = 0;
    std::uint64_t callback_ns_ = 0;  // of those whose records came through the ring
    std::uint64_t told_callbacks_ = 0;
    int idle_ = 0;
};

void* run_writer(void* recorder) {
    // An exception here must not end the job; what it lost is a gap in the numbers of the records.
    try {
        Writer(*static_cast<Recorder*>(recorder)).run();
    } catch (...) {
    }
    return nullptr;
}

}  // namespace

bool start_writer(Recorder& recorder) {
    // The job's signals are for the job's threads.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread{};
    const bool started = pthread_create(&thread, nullptr, run_writer, &recorder) == 0;
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (started) {
        pthread_setname_np(thread, "collscope-rec");
        pthread_detach(thread);
    }
    return started;
}

}  // namespace collscope::recorder
