/* Preloaded (LD_PRELOAD): counts the I/O calls that concern files below a folder, and lets one of
 * them fail, or the process die at it.
 *
 *   TORTURE_BELOW  folder, absolute; calls on other files pass untouched and uncounted
 *   TORTURE_STATE  file of `struct state`, shared by all processes of a command: the n-th call is
 *                  the n-th of them all
 *   TORTURE_FAULT  KIND:N:WHAT or KIND:N+:WHAT; without it calls are only counted
 *     KIND  a name of `KINDS`, or any
 *     N     the N-th call of the kind; with + every one from there on, as on a full disk
 *     WHAT  a name of `ERRORS`; short: half of the bytes; kill: SIGKILL before the call;
 *           torn: SIGKILL after half of the bytes
 *
 * A call is looked at by its path, which the kernel knows for a descriptor, so that nothing has to
 * be kept. What libraries do inside of libc (stdio) calls none of these names and passes.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { READ, WRITE, OPEN, SYNC, RENAME, TRUNCATE, UNLINK, MMAP, CLOSE, ALLOCATE, STAT, ANY };
static const char *const KINDS[] = {"read",   "write", "open",  "sync",     "rename", "truncate",
                                    "unlink", "mmap",  "close", "allocate", "stat",   "any"};
static const struct {
    const char *name;
    int number;
} ERRORS[] = {{"EIO", EIO},       {"ENOSPC", ENOSPC}, {"EINTR", EINTR}, {"EMFILE", EMFILE},
              {"EACCES", EACCES}, {"ENOMEM", ENOMEM}, {"EDQUOT", EDQUOT}};

/* torture.py reads it as 13 numbers and a text. */
struct state {
    _Atomic uint64_t calls[ANY + 1];
    _Atomic uint64_t fired;
    char first[256]; /* the call that met the fault first */
};

enum what { NOTHING, FAIL, SHORT, KILL, TORN };

static struct state *state;
static char below[PATH_MAX];
static size_t below_length;
static enum kind fault_kind;
static uint64_t fault_at;
static int fault_stays;
static enum what fault_what;
static int fault_errno;

static void wrong(const char *what) {
    fprintf(stderr, "shim: %s\n", what);
    _exit(99);
}

static void read_fault(const char *text) {
    char kind[32], what[32], *end;
    if (sscanf(text, "%31[a-z]:", kind) != 1) wrong("TORTURE_FAULT without a kind");
    for (fault_kind = 0; fault_kind <= ANY && strcmp(KINDS[fault_kind], kind); fault_kind++) {}
    if (fault_kind > ANY) wrong("TORTURE_FAULT of an unknown kind");
    fault_at = strtoull(text + strlen(kind) + 1, &end, 10);
    fault_stays = *end == '+';
    if (sscanf(end + fault_stays, ":%31s", what) != 1 || !fault_at) wrong("TORTURE_FAULT cut");
    fault_what = !strcmp(what, "short")  ? SHORT
                 : !strcmp(what, "kill") ? KILL
                 : !strcmp(what, "torn") ? TORN
                                         : FAIL;
    for (size_t i = 0; i < sizeof ERRORS / sizeof *ERRORS; i++)
        if (!strcmp(ERRORS[i].name, what)) fault_errno = ERRORS[i].number;
    if (fault_what == FAIL && !fault_errno) wrong("TORTURE_FAULT of an unknown error");
}

__attribute__((constructor)) static void begin(void) {
    const char *folder = getenv("TORTURE_BELOW"), *shared = getenv("TORTURE_STATE");
    if (!folder || !shared) return;
    below_length = strlen(strncpy(below, folder, sizeof below - 1));
    if (getenv("TORTURE_FAULT")) read_fault(getenv("TORTURE_FAULT"));
    int file = (int)syscall(SYS_openat, AT_FDCWD, shared, O_RDWR | O_CLOEXEC, 0);
    void *at = (void *)syscall(SYS_mmap, NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED,
                               file, 0L);
    if (file < 0 || at == MAP_FAILED) wrong("TORTURE_STATE cannot be mapped");
    syscall(SYS_close, file);
    state = at;
}

/* Path of a descriptor, or of `name` seen from it; the text in `path`, 0 where there is none. */
static int whole_path(int descriptor, const char *name, char path[2 * PATH_MAX]) {
    if (name && name[0] == '/') {
        snprintf(path, 2 * PATH_MAX, "%s", name);
        return 1;
    }
    char link[64];
    if (descriptor == AT_FDCWD)
        strcpy(link, "/proc/self/cwd");
    else
        snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    long length = syscall(SYS_readlinkat, AT_FDCWD, link, path, PATH_MAX - 1);
    if (length < 0) return 0;
    path[length] = 0;
    if (name && *name) snprintf(path + length, 2 * PATH_MAX - (size_t)length, "/%s", name);
    return 1;
}

static void die(void) {
    syscall(SYS_kill, getpid(), SIGKILL);
    for (;;) pause();
}

/* What is to happen to this call, which is counted; a process that is to die here does. */
static enum what meet(enum kind kind, int descriptor, const char *name) {
    int saved = errno;
    char path[2 * PATH_MAX];
    if (!state) return NOTHING;
    int ours = whole_path(descriptor, name, path) && !strncmp(path, below, below_length) &&
               (path[below_length] == '/' || !path[below_length]);
    errno = saved;
    if (!ours) return NOTHING;
    uint64_t of_kind = atomic_fetch_add(&state->calls[kind], 1) + 1;
    uint64_t of_all = atomic_fetch_add(&state->calls[ANY], 1) + 1;
    if (fault_what == NOTHING || (fault_kind != ANY && fault_kind != kind)) return NOTHING;
    uint64_t number = fault_kind == ANY ? of_all : of_kind;
    if (fault_stays ? number < fault_at : number != fault_at) return NOTHING;
    if (atomic_fetch_add(&state->fired, 1) == 0)
        snprintf(state->first, sizeof state->first, "%s %.200s", KINDS[kind], path);
    if (fault_what == KILL || (fault_what == TORN && kind != WRITE)) die();
    if (fault_what == FAIL) errno = fault_errno;
    return fault_what;
}

static size_t half(size_t count) { return count > 1 ? count / 2 : count; }

/* The function of the same name that the program would have called without this library. */
#define REAL(name)                                    \
    static __typeof__(&name) real;                    \
    if (!real) {                                      \
        *(void **)&real = dlsym(RTLD_NEXT, #name);    \
    }

#define FAILS(kind, descriptor, path, result) \
    if (meet(kind, descriptor, path) == FAIL) return result

#define TRANSFER(kind, call, call_half)                     \
    switch (meet(kind, fd, NULL)) {                         \
        case FAIL: return -1;                               \
        case SHORT: return call_half;                       \
        case TORN: (void)!(call_half); die(); return -1;    \
        default: return call;                               \
    }

ssize_t read(int fd, void *to, size_t count) {
    REAL(read)
    TRANSFER(READ, real(fd, to, count), real(fd, to, half(count)))
}
ssize_t pread(int fd, void *to, size_t count, off_t at) {
    REAL(pread)
    TRANSFER(READ, real(fd, to, count, at), real(fd, to, half(count), at))
}
ssize_t pread64(int fd, void *to, size_t count, off64_t at) {
    REAL(pread64)
    TRANSFER(READ, real(fd, to, count, at), real(fd, to, half(count), at))
}
ssize_t write(int fd, const void *from, size_t count) {
    REAL(write)
    TRANSFER(WRITE, real(fd, from, count), real(fd, from, half(count)))
}
ssize_t pwrite(int fd, const void *from, size_t count, off_t at) {
    REAL(pwrite)
    TRANSFER(WRITE, real(fd, from, count, at), real(fd, from, half(count), at))
}
ssize_t pwrite64(int fd, const void *from, size_t count, off64_t at) {
    REAL(pwrite64)
    TRANSFER(WRITE, real(fd, from, count, at), real(fd, from, half(count), at))
}
/* A short one takes the first buffer only, or half of it where it is alone. */
static struct iovec one(const struct iovec *parts, int count) {
    struct iovec first = parts[0];
    if (count == 1) first.iov_len = half(first.iov_len);
    return first;
}
ssize_t readv(int fd, const struct iovec *parts, int count) {
    REAL(readv)
    struct iovec first = one(parts, count);
    TRANSFER(READ, real(fd, parts, count), real(fd, &first, 1))
}
ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(writev)
    struct iovec first = one(parts, count);
    TRANSFER(WRITE, real(fd, parts, count), real(fd, &first, 1))
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
    REAL(pwritev)
    struct iovec first = one(parts, count);
    TRANSFER(WRITE, real(fd, parts, count, at), real(fd, &first, 1, at))
}
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at) {
    REAL(pwritev64)
    struct iovec first = one(parts, count);
    TRANSFER(WRITE, real(fd, parts, count, at), real(fd, &first, 1, at))
}
ssize_t sendfile(int to, int from, off_t *at, size_t count) {
    REAL(sendfile)
    int fd = to;
    TRANSFER(WRITE, real(to, from, at, count), real(to, from, at, half(count)))
}
ssize_t sendfile64(int to, int from, off64_t *at, size_t count) {
    REAL(sendfile64)
    int fd = to;
    TRANSFER(WRITE, real(to, from, at, count), real(to, from, at, half(count)))
}

static mode_t mode_of(int flags, va_list rest) {
    int made = (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE;
    return made ? (mode_t)va_arg(rest, int) : 0;
}
#define WITH_MODE            \
    va_list rest;            \
    va_start(rest, flags);   \
    mode_t mode = mode_of(flags, rest); \
    va_end(rest);

int open(const char *path, int flags, ...) {
    REAL(open)
    WITH_MODE
    FAILS(OPEN, AT_FDCWD, path, -1);
    return real(path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    REAL(open64)
    WITH_MODE
    FAILS(OPEN, AT_FDCWD, path, -1);
    return real(path, flags, mode);
}
int openat(int folder, const char *path, int flags, ...) {
    REAL(openat)
    WITH_MODE
    FAILS(OPEN, folder, path, -1);
    return real(folder, path, flags, mode);
}
int openat64(int folder, const char *path, int flags, ...) {
    REAL(openat64)
    WITH_MODE
    FAILS(OPEN, folder, path, -1);
    return real(folder, path, flags, mode);
}
FILE *fopen(const char *path, const char *mode) {
    REAL(fopen)
    FAILS(OPEN, AT_FDCWD, path, NULL);
    return real(path, mode);
}
FILE *fopen64(const char *path, const char *mode) {
    REAL(fopen64)
    FAILS(OPEN, AT_FDCWD, path, NULL);
    return real(path, mode);
}
DIR *opendir(const char *path) {
    REAL(opendir)
    FAILS(OPEN, AT_FDCWD, path, NULL);
    return real(path);
}
int mkdir(const char *path, mode_t mode) {
    REAL(mkdir)
    FAILS(OPEN, AT_FDCWD, path, -1);
    return real(path, mode);
}

int fsync(int fd) {
    REAL(fsync)
    FAILS(SYNC, fd, NULL, -1);
    return real(fd);
}
int fdatasync(int fd) {
    REAL(fdatasync)
    FAILS(SYNC, fd, NULL, -1);
    return real(fd);
}
int rename(const char *from, const char *to) {
    REAL(rename)
    FAILS(RENAME, AT_FDCWD, from, -1);
    return real(from, to);
}
int renameat(int from_folder, const char *from, int to_folder, const char *to) {
    REAL(renameat)
    FAILS(RENAME, from_folder, from, -1);
    return real(from_folder, from, to_folder, to);
}
int truncate(const char *path, off_t length) {
    REAL(truncate)
    FAILS(TRUNCATE, AT_FDCWD, path, -1);
    return real(path, length);
}
int truncate64(const char *path, off64_t length) {
    REAL(truncate64)
    FAILS(TRUNCATE, AT_FDCWD, path, -1);
    return real(path, length);
}
int ftruncate(int fd, off_t length) {
    REAL(ftruncate)
    FAILS(TRUNCATE, fd, NULL, -1);
    return real(fd, length);
}
int ftruncate64(int fd, off64_t length) {
    REAL(ftruncate64)
    FAILS(TRUNCATE, fd, NULL, -1);
    return real(fd, length);
}
int unlink(const char *path) {
    REAL(unlink)
    FAILS(UNLINK, AT_FDCWD, path, -1);
    return real(path);
}
int unlinkat(int folder, const char *path, int flags) {
    REAL(unlinkat)
    FAILS(UNLINK, folder, path, -1);
    return real(folder, path, flags);
}
int rmdir(const char *path) {
    REAL(rmdir)
    FAILS(UNLINK, AT_FDCWD, path, -1);
    return real(path);
}

static int anonymous(int flags) { return flags & MAP_ANONYMOUS; }
void *mmap(void *at, size_t length, int protection, int flags, int fd, off_t from) {
    REAL(mmap)
    if (!anonymous(flags)) FAILS(MMAP, fd, NULL, MAP_FAILED);
    return real(at, length, protection, flags, fd, from);
}
void *mmap64(void *at, size_t length, int protection, int flags, int fd, off64_t from) {
    REAL(mmap64)
    if (!anonymous(flags)) FAILS(MMAP, fd, NULL, MAP_FAILED);
    return real(at, length, protection, flags, fd, from);
}
/* The descriptor is gone also where close(2) fails. */
int close(int fd) {
    REAL(close)
    if (meet(CLOSE, fd, NULL) == FAIL) {
        int error = errno;
        real(fd);
        errno = error;
        return -1;
    }
    return real(fd);
}

int fallocate(int fd, int mode, off_t from, off_t length) {
    REAL(fallocate)
    FAILS(ALLOCATE, fd, NULL, -1);
    return real(fd, mode, from, length);
}
int fallocate64(int fd, int mode, off64_t from, off64_t length) {
    REAL(fallocate64)
    FAILS(ALLOCATE, fd, NULL, -1);
    return real(fd, mode, from, length);
}
int posix_fallocate(int fd, off_t from, off_t length) {
    REAL(posix_fallocate)
    FAILS(ALLOCATE, fd, NULL, errno);
    return real(fd, from, length);
}
int posix_fallocate64(int fd, off64_t from, off64_t length) {
    REAL(posix_fallocate64)
    FAILS(ALLOCATE, fd, NULL, errno);
    return real(fd, from, length);
}

#define STATS(name, folder, path, ...)    \
    REAL(name)                            \
    FAILS(STAT, folder, path, -1);        \
    return real(__VA_ARGS__);

int stat(const char *path, struct stat *into) { STATS(stat, AT_FDCWD, path, path, into) }
int stat64(const char *path, struct stat64 *into) { STATS(stat64, AT_FDCWD, path, path, into) }
int lstat(const char *path, struct stat *into) { STATS(lstat, AT_FDCWD, path, path, into) }
int lstat64(const char *path, struct stat64 *into) { STATS(lstat64, AT_FDCWD, path, path, into) }
int fstat(int fd, struct stat *into) { STATS(fstat, fd, NULL, fd, into) }
int fstat64(int fd, struct stat64 *into) { STATS(fstat64, fd, NULL, fd, into) }
int fstatat(int folder, const char *path, struct stat *into, int flags) {
    STATS(fstatat, folder, path, folder, path, into, flags)
}
int fstatat64(int folder, const char *path, struct stat64 *into, int flags) {
    STATS(fstatat64, folder, path, folder, path, into, flags)
}
int statx(int folder, const char *path, int flags, unsigned mask, struct statx *into) {
    STATS(statx, folder, path, folder, path, flags, mask, into)
}
int access(const char *path, int mode) { STATS(access, AT_FDCWD, path, path, mode) }
int faccessat(int folder, const char *path, int mode, int flags) {
    STATS(faccessat, folder, path, folder, path, mode, flags)
}
