// Control of the simulated driver from a test in the same process. Not part of CUDA; nothing but tests may use it.
//
// Symbols are named as exported ("cuMemAlloc_v2", "cuLaunchKernel_ptsz"). All functions may be called from any thread.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Makes the `nth` call of `symbol` from now on (1: the next) return `result` (a CUresult) without doing anything;
// nth 0: every call. Replaces an earlier fault of the symbol. Returns 0, or -1 for an unknown symbol.
int simcuda_set_fault(const char* symbol, uint64_t nth, int result);

// Takes faults in the notation of SIMCUDA_FAULTS ("cuMemAlloc_v2:3:2,cuLaunchKernel:*:700"). Returns 0, or -1 if any
// part of it is not understood; what is understood is armed.
int simcuda_set_faults(const char* text);

// Number of calls of `symbol`, the failed ones too, since the start or the last simcuda_reset. 0 for an unknown one.
uint64_t simcuda_calls(const char* symbol);

// Removes all faults, sets all counters to 0, forgets a sticky error. Memory, handles and streams stay.
void simcuda_reset(void);

// Bytes of device memory there are from now on; allocations beyond fail with CUDA_ERROR_OUT_OF_MEMORY.
void simcuda_set_memory(size_t bytes);

// Busy-wait of every call that submits work to a stream, in nanoseconds.
void simcuda_set_latency(uint64_t nanoseconds);

// 1: kernel launches return success at once and do nothing. Returns what was set before.
int simcuda_set_null_launch(int on);

// What the kernels host_call run, on a stream's thread: the bytes behind this pointer in their parameter, and what
// gives the host's address of memory of the device, null where it is not all one allocation. Returns a CUresult.
typedef int (*HostFunction)(const unsigned char* data, void* (*translate)(unsigned long long address, size_t bytes));

// The range that all device addresses lie in. The host cannot read or write there.
void simcuda_device_range(uint64_t* base, uint64_t* bytes);

// Number of exported driver symbols, and the name of each (NULL past the end).
size_t simcuda_symbol_count(void);
const char* simcuda_symbol_name(size_t index);

// A driver function that no header knows, to test what an interposer does with such: returns CUDA_SUCCESS and
// *result = a + 2 b + 3 c + 4 d + 5 e + 6 f + 7 g + 8 h + 9 i + 10 j, doubles and integers in turn.
int cuSimUnknown(double* result, int a, double b, long c, float d, int e, double f, long g, double h, unsigned i,
                 double j, const char* text);

// As a newer driver's might be: the number of an executable graph's nodes. exec: a CUgraphExec; `b` to `f` are added to
// *nodes, as numbers are.
int cuSimGraphExecNodes(void* exec, double* nodes, int b, double c, long d, float e, int f);

// A second, without arguments, and a third with its own (name, version) variants for cuGetProcAddress: "cuSimVersioned"
// is 1 from 11000 and 2 from 12000 on, and returns that number through its argument.
int cuSimUnknownCount(void);
int cuSimVersioned(int* number);
int cuSimVersioned_v2(int* number);

#ifdef __cplusplus
}
#endif
