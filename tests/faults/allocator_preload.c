// Another preloaded allocator, of the usual kind: it asks the loader for the next allocator in its first call, and
// serves what the loader itself allocates meanwhile from a small buffer of its own.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static void* (*g_malloc)(size_t);
static void* (*g_calloc)(size_t, size_t);
static void* (*g_realloc)(void*, size_t);
static void (*g_free)(void*);
static __thread int t_asking __attribute__((tls_model("initial-exec")));

static _Alignas(16) char g_buffer[64 * 1024];
static size_t g_used;

static void* from_buffer(size_t bytes) {
  const size_t begin = __atomic_fetch_add(&g_used, (bytes + 15) / 16 * 16, __ATOMIC_RELAXED);
  return begin + bytes <= sizeof g_buffer ? g_buffer + begin : NULL;
}

static int in_buffer(const void* block) {
  return (const char*)block >= g_buffer && (const char*)block < g_buffer + sizeof g_buffer;
}

static int ready(void) {
  if (__atomic_load_n(&g_free, __ATOMIC_ACQUIRE) != NULL) return 1;
  if (t_asking) return 0;
  t_asking = 1;
  g_malloc = dlsym(RTLD_NEXT, "malloc");
  g_calloc = dlsym(RTLD_NEXT, "calloc");
  g_realloc = dlsym(RTLD_NEXT, "realloc");
  __atomic_store_n(&g_free, dlsym(RTLD_NEXT, "free"), __ATOMIC_RELEASE);
  t_asking = 0;
  return g_free != NULL;
}

EXPORT void* malloc(size_t bytes) { return ready() ? g_malloc(bytes) : from_buffer(bytes); }
EXPORT void* calloc(size_t count, size_t bytes) {
  return ready() ? g_calloc(count, bytes) : from_buffer(count * bytes);
}

EXPORT void* realloc(void* old, size_t bytes) {
  if (old != NULL && in_buffer(old)) {
    void* block = malloc(bytes);
    if (block != NULL) memcpy(block, old, bytes);
    return block;
  }
  return ready() ? g_realloc(old, bytes) : from_buffer(bytes);
}

EXPORT void free(void* block) {
  if (block == NULL || in_buffer(block)) return;
  if (ready()) g_free(block);
}
