// A second preloaded library: makes chosen calls of the C library fail when libgrape.so makes them. Everybody else's
// calls go through untouched; whose call it is tells the return address.
//
//   FAULT_CALL=call:which:how   call: malloc calloc realloc mmap pthread_create open write close
//                               which: N (the N-th call), N+ (it and all after it), *N (every N-th); from 1
//                               how: an errno name (ENOMEM ENOSPC EIO EINTR EAGAIN EMFILE EDQUOT EFBIG), or "short"
//                               (write only: half of the bytes are written, at least one)
//   FAULT_REPORT=path           at the end, "call count" of what libgrape.so called, to this file
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);

enum call { kMalloc, kCalloc, kRealloc, kMmap, kPthreadCreate, kOpen, kWrite, kClose, kCalls };
static const char* const kNames[kCalls] = {"malloc",         "calloc", "realloc", "mmap",
                                           "pthread_create", "open",   "write",   "close"};

static uintptr_t g_begin, g_end;  // where libgrape.so lies
static int g_counts[kCalls];
static int g_call = -1, g_first = 0, g_error = 0;
static enum { kOnce, kFrom, kEvery } g_which = kOnce;
static int g_short = 0;
static pid_t g_process;

static int find_library(struct dl_phdr_info* info, size_t size, void* data) {
  (void)size;
  (void)data;
  const char* slash = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
  if (slash == NULL || strcmp(slash + 1, "libgrape.so") != 0) return 0;
  g_begin = UINTPTR_MAX;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    if (info->dlpi_phdr[i].p_type != PT_LOAD) continue;
    const uintptr_t begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
    const uintptr_t end = begin + info->dlpi_phdr[i].p_memsz;
    if (begin < g_begin) g_begin = begin;
    if (end > g_end) g_end = end;
  }
  return 1;
}

static int error_of(const char* name) {
  static const struct {
    const char* name;
    int value;
  } kErrors[] = {{"ENOMEM", ENOMEM}, {"ENOSPC", ENOSPC}, {"EIO", EIO},       {"EINTR", EINTR},
                 {"EAGAIN", EAGAIN}, {"EMFILE", EMFILE}, {"EDQUOT", EDQUOT}, {"EFBIG", EFBIG}};
  for (size_t i = 0; i < sizeof kErrors / sizeof *kErrors; ++i) {
    if (strcmp(kErrors[i].name, name) == 0) return kErrors[i].value;
  }
  return 0;
}

static void configure(void) {
  const char* text = getenv("FAULT_CALL");
  const char* which = text ? strchr(text, ':') : NULL;
  const char* how = which ? strchr(which + 1, ':') : NULL;
  if (how == NULL) return;
  for (int call = 0; call < kCalls; ++call) {
    if (strlen(kNames[call]) == (size_t)(which - text) && strncmp(kNames[call], text, (size_t)(which - text)) == 0) {
      g_call = call;
    }
  }
  ++which;
  if (*which == '*') {
    g_which = kEvery;
    ++which;
  }
  char* stop = NULL;
  g_first = (int)strtol(which, &stop, 10);
  if (*stop == '+') g_which = kFrom;
  g_short = strcmp(how + 1, "short") == 0;
  g_error = error_of(how + 1);
  if (g_call < 0 || g_first <= 0 || (g_error == 0 && !g_short)) {
    static const char kMessage[] = "fault_preload: FAULT_CALL is not understood\n";
    syscall(SYS_write, 2, kMessage, sizeof kMessage - 1);
    syscall(SYS_exit_group, 125);
  }
}

__attribute__((constructor(101))) static void start(void) {
  if (g_process != 0) return;
  g_process = getpid();
  dl_iterate_phdr(find_library, NULL);
  configure();
}

__attribute__((destructor(101))) static void report(void) {
  const char* path = getenv("FAULT_REPORT");
  if (path == NULL || getpid() != g_process) return;
  const int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  for (int call = 0; call < kCalls; ++call) {
    char line[64];
    const int bytes = snprintf(line, sizeof line, "%s %d\n", kNames[call], g_counts[call]);
    syscall(SYS_write, file, line, (size_t)bytes);
  }
  syscall(SYS_close, file);
}

// Does this call of libgrape.so's fail?
static int fails(enum call call, void* caller) {
  const uintptr_t address = (uintptr_t)caller;
  if (g_end == 0 && g_process == 0) start();  // called before our constructor
  if (address < g_begin || address >= g_end) return 0;
  const int number = __atomic_add_fetch(&g_counts[call], 1, __ATOMIC_RELAXED);
  if ((int)call != g_call) return 0;
  if (g_which == kFrom) return number >= g_first;
  if (g_which == kEvery) return number % g_first == 0;
  return number == g_first;
}
#define FAILS(call) fails(call, __builtin_return_address(0))

EXPORT void* malloc(size_t bytes) {
  if (FAILS(kMalloc)) {
    errno = g_error;
    return NULL;
  }
  return __libc_malloc(bytes);
}

EXPORT void* calloc(size_t count, size_t bytes) {
  if (FAILS(kCalloc)) {
    errno = g_error;
    return NULL;
  }
  return __libc_calloc(count, bytes);
}

EXPORT void* realloc(void* old, size_t bytes) {
  if (FAILS(kRealloc)) {
    errno = g_error;
    return NULL;
  }
  return __libc_realloc(old, bytes);
}

EXPORT void* mmap(void* address, size_t bytes, int protection, int flags, int file, off_t offset) {
  if (FAILS(kMmap)) {
    errno = g_error;
    return MAP_FAILED;
  }
  return (void*)syscall(SYS_mmap, address, bytes, protection, flags, file, offset);
}

EXPORT int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start_routine)(void*),
                          void* argument) {
  static int (*next)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  if (FAILS(kPthreadCreate)) return g_error;
  if (next == NULL) next = dlsym(RTLD_NEXT, "pthread_create");
  return next(thread, attributes, start_routine, argument);
}

EXPORT int open(const char* path, int flags, ...) {
  mode_t mode = 0;
  if ((flags & (O_CREAT | O_TMPFILE)) != 0) {
    va_list arguments;
    va_start(arguments, flags);
    mode = va_arg(arguments, mode_t);
    va_end(arguments);
  }
  if (FAILS(kOpen)) {
    errno = g_error;
    return -1;
  }
  return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

EXPORT ssize_t write(int file, const void* data, size_t bytes) {
  if (file > 2 && FAILS(kWrite)) {
    if (g_short) return syscall(SYS_write, file, data, bytes > 1 ? bytes / 2 : bytes);
    errno = g_error;
    return -1;
  }
  return syscall(SYS_write, file, data, bytes);
}

EXPORT int close(int file) {
  if (FAILS(kClose)) {
    syscall(SYS_close, file);  // as the kernel does: the error comes, the descriptor is gone
    errno = g_error;
    return -1;
  }
  return (int)syscall(SYS_close, file);
}
