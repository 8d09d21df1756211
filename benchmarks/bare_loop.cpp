// The peer of the scanner's benchmark: the least a C++ program can do with a COLL log.
//
// Maps the file, finds lines with memchr, reads the 17 fields of RCCL 2.18's COLL line in their one
// order into a struct and keeps the structs. No interning, no other line kinds, no damage handling,
// no output columns. Prints seconds and rows.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <vector>

namespace {

struct Row {
    std::string_view host;
    std::string_view op;
    std::uint64_t op_count, sendbuff, recvbuff, count, comm, stream;
    std::int32_t pid, tid, device, datatype, redop, root, nranks, task, global_rank;
};

struct Reader {
    const char* p;
    const char* end;

    bool skip(std::string_view literal) {
        const auto left = static_cast<std::size_t>(end - p);
        if (left < literal.size() || std::memcmp(p, literal.data(), literal.size()) != 0) {
            return false;
        }
        p += literal.size();
        return true;
    }

    bool word(char stop, std::string_view& value) {
        const void* hit = std::memchr(p, stop, static_cast<std::size_t>(end - p));
        if (hit == nullptr) {
            return false;
        }
        const char* at = static_cast<const char*>(hit);
        value = {p, static_cast<std::size_t>(at - p)};
        p = at;
        return true;
    }

    template <class T>
    bool decimal(T& value) {
        const char* start = p;
        std::uint64_t sum = 0;
        for (; p != end && *p >= '0' && *p <= '9'; ++p) {
            sum = sum * 10 + static_cast<std::uint64_t>(*p - '0');
        }
        value = static_cast<T>(sum);
        return p != start;
    }

    bool hexadecimal(std::uint64_t& value) {
        const char* start = p;
        std::uint64_t sum = 0;
        for (; p != end; ++p) {
            const char c = *p;
            if (c >= '0' && c <= '9') {
                sum = sum << 4 | static_cast<std::uint64_t>(c - '0');
            } else if (c >= 'a' && c <= 'f') {
                sum = sum << 4 | static_cast<std::uint64_t>(c - 'a' + 10);
            } else {
                break;
            }
        }
        value = sum;
        return p != start;
    }
};

bool parse(const char* begin, const char* end, Row& row) {
    Reader in{begin, end};
    return in.word(':', row.host) && in.skip(":") && in.decimal(row.pid) && in.skip(":") &&
           in.decimal(row.tid) && in.skip(" [") && in.decimal(row.device) &&
           in.skip("] NCCL INFO ") && in.word(':', row.op) && in.skip(": opCount ") &&
           in.hexadecimal(row.op_count) && in.skip(" sendbuff 0x") &&
           in.hexadecimal(row.sendbuff) && in.skip(" recvbuff 0x") &&
           in.hexadecimal(row.recvbuff) && in.skip(" count ") && in.decimal(row.count) &&
           in.skip(" datatype ") && in.decimal(row.datatype) && in.skip(" op ") &&
           in.decimal(row.redop) && in.skip(" root ") && in.decimal(row.root) &&
           in.skip(" comm 0x") && in.hexadecimal(row.comm) && in.skip(" [nranks=") &&
           in.decimal(row.nranks) && in.skip("] stream 0x") && in.hexadecimal(row.stream) &&
           in.skip(" task ") && in.decimal(row.task) && in.skip(" globalrank ") &&
           in.decimal(row.global_rank);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: bare_loop LOG\n");
        return 2;
    }
    const auto start = std::chrono::steady_clock::now();
    const int file = open(argv[1], O_RDONLY);
    struct stat status {};
    if (file < 0 || fstat(file, &status) != 0) {
        std::fprintf(stderr, "%s: cannot be read. Give the path of a log.\n", argv[1]);
        return 3;
    }
    const auto size = static_cast<std::size_t>(status.st_size);
    void* mapped = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
    if (mapped == MAP_FAILED) {
        std::fprintf(stderr, "%s: cannot be mapped. Give a file that is not empty.\n", argv[1]);
        return 3;
    }
    const char* p = static_cast<const char*>(mapped);
    const char* const end = p + size;
    std::vector<Row> rows;
    while (p != end) {
        const void* hit = std::memchr(p, '\n', static_cast<std::size_t>(end - p));
        const char* line_end = hit == nullptr ? end : static_cast<const char*>(hit);
        Row row;
        if (parse(p, line_end, row)) {
            rows.push_back(row);
        }
        p = line_end == end ? end : line_end + 1;
    }
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    std::printf("%.3f s %zu rows %.0f MB/s\n", taken.count(), rows.size(),
                static_cast<double>(size) / 1e6 / taken.count());
    return 0;
}
