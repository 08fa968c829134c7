/* Makes single calls on the files of single trials fail, in every process that it is preloaded into.

   cc -shared -fPIC -o failing_calls.so failing_calls.c -ldl
   LD_PRELOAD=failing_calls.so FAILING_CALLS=faults python -m harness run ...

   The file `faults` holds a list of `struct fault`, shared by all processes; tests/long/failing_calls.py writes it. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

struct fault {
    char key[16];      /* what the path must contain: the beginning of a trial's key */
    char operation[8]; /* ends with a zero */
    int32_t nth;       /* which of these calls fails, from 0 on; negative for none */
    int32_t number;    /* the error number */
    int32_t seen;      /* how many of these calls there were */
    int32_t failed;    /* whether the call has failed */
    char path[216];    /* of the call that failed */
};

static struct fault *faults;
static size_t count;

/* The function that this library hides. */
#define REAL(name)                                                                                                     \
    static __typeof__(name) *real;                                                                                     \
    if (real == NULL)                                                                                                  \
        real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void map_faults(void)
{
    const char *file = getenv("FAILING_CALLS");
    int (*open_file)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
    struct stat status;
    int descriptor;
    void *mapped;

    if (file == NULL || (descriptor = open_file(file, O_RDWR | O_CLOEXEC)) < 0)
        return;
    if (fstat(descriptor, &status) == 0) {
        mapped = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
        if (mapped != MAP_FAILED) {
            faults = mapped;
            count = (size_t)status.st_size / sizeof(struct fault);
        }
    }
    close(descriptor);
}

/* Count a call on that path; returns whether it must fail, and has then set errno. */
static int fails(const char *operation, const char *path)
{
    int result = 0;
    size_t index;

    for (index = 0; path != NULL && index < count; index++) {
        struct fault *one = faults + index;
        size_t length = strlen(path);
        if (strcmp(one->operation, operation) != 0 || memmem(path, length, one->key, sizeof one->key) == NULL)
            continue;
        if (__atomic_fetch_add(&one->seen, 1, __ATOMIC_SEQ_CST) == one->nth) {
            snprintf(one->path, sizeof one->path, "%s", path);
            one->failed = 1;
            errno = one->number;
            result = 1;
        }
    }
    return result;
}

/* The same for an open file. */
static int fails_on(const char *operation, int descriptor)
{
    char link[64], path[1024];
    int before = errno;
    ssize_t length;

    if (count == 0)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    length = readlink(link, path, sizeof path - 1);
    errno = before;
    if (length < 0)
        return 0;
    path[length] = 0;
    return fails(operation, path);
}

int fsync(int descriptor)
{
    REAL(fsync);
    return fails_on("fsync", descriptor) ? -1 : real(descriptor);
}

int fdatasync(int descriptor)
{
    REAL(fdatasync);
    return fails_on("fsync", descriptor) ? -1 : real(descriptor);
}

ssize_t write(int descriptor, const void *bytes, size_t size)
{
    REAL(write);
    return fails_on("write", descriptor) ? -1 : real(descriptor, bytes, size);
}

int rename(const char *source, const char *target)
{
    REAL(rename);
    return fails("rename", target) ? -1 : real(source, target);
}

int renameat(int first, const char *source, int second, const char *target)
{
    REAL(renameat);
    return fails("rename", target) ? -1 : real(first, source, second, target);
}

int link(const char *source, const char *target)
{
    REAL(link);
    return fails("link", target) ? -1 : real(source, target);
}

int linkat(int first, const char *source, int second, const char *target, int flags)
{
    REAL(linkat);
    return fails("link", target) ? -1 : real(first, source, second, target, flags);
}

int unlink(const char *path)
{
    REAL(unlink);
    return fails("unlink", path) ? -1 : real(path);
}

int unlinkat(int folder, const char *path, int flags)
{
    REAL(unlinkat);
    return fails("unlink", path) ? -1 : real(folder, path, flags);
}

/* `open` to write and to read are operations of their own. */
static const char *opening(int flags)
{
    return (flags & O_ACCMODE) == O_RDONLY ? "read" : "open";
}

#define OPEN(name)                                                                                                     \
    int name(const char *path, int flags, ...)                                                                         \
    {                                                                                                                  \
        mode_t mode;                                                                                                   \
        va_list more;                                                                                                  \
        REAL(name);                                                                                                    \
        va_start(more, flags);                                                                                         \
        mode = va_arg(more, mode_t);                                                                                   \
        va_end(more);                                                                                                  \
        return fails(opening(flags), path) ? -1 : real(path, flags, mode);                                             \
    }

OPEN(open)
OPEN(open64)
