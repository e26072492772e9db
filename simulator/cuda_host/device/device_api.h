/* What compiled kernels call and what runs them: a table of functions, in C, so that the two sides
 * may come from different compilers. A kernel's thread is a fiber whose stack begins at a multiple
 * of its size; the thread's record lies there, so that any address in the stack leads to it. */
#ifndef TILEWRIGHT_DEVICE_API_H
#define TILEWRIGHT_DEVICE_API_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tw_thread tw_thread;

enum { TW_READ = 0, TW_WRITE = 1, TW_UNALIGNED = 2 }; /* flags of `access` */
enum { TW_SHUFFLE_XOR = 0, TW_SHUFFLE_DOWN = 1, TW_SHUFFLE_INDEX = 2 };
enum { TW_F32 = 0, TW_F64 = 1, TW_F16 = 2, TW_BF16 = 3, TW_I32 = 4, TW_I8 = 5 }; /* of `atomic_add` */
/* The same, added to the type: what an atomic does but add. */
enum { TW_LARGEST = 16, TW_SMALLEST = 32, TW_TIMES = 48 };

/* The place in the kernel's text is the return address of each call. */
/* A tensor of three dimensions, the innermost first, and the boxes that it is copied in. */
typedef struct tw_box_map {
  unsigned char* base;
  int64_t extent[5]; /* elements */
  int64_t stride[5]; /* bytes between neighbours */
  int32_t box[5];    /* elements that a copy takes */
  int32_t steps[5];  /* every so manieth */
  int32_t rank;      /* of the copies that it is for */
  int32_t element_bytes;
} tw_box_map;
enum { TW_A_ACROSS = 1, TW_B_ACROSS = 2, TW_BFLOAT = 4 }; /* flags of `wgmma` */

typedef struct tw_device_api {
  void (*access)(tw_thread*, const void*, uint64_t bytes, uint32_t flags, const void* place);
  void (*block_sync)(tw_thread*);
  void (*warp_sync)(tw_thread*);
  void (*barrier)(tw_thread*, int id, int threads);
  void (*grid_sync)(tw_thread*, uint32_t* counter);
  uint32_t (*shuffle)(tw_thread*, uint32_t bits, int how, int operand);
  uint32_t (*ballot)(tw_thread*, int predicate);
  void (*mbarrier_init)(tw_thread*, void*, uint32_t arrivals);
  void (*mbarrier_arrive)(tw_thread*, void*);
  void (*mbarrier_arrive_after_copies)(tw_thread*, void*);
  void (*mbarrier_wait)(tw_thread*, void*, uint32_t parity);
  void (*cp_async)(tw_thread*, void* shared, const void* global, int bytes, int valid);
  void (*cp_async_commit)(tw_thread*);
  void (*cp_async_wait)(tw_thread*, int groups);
  void (*load_global)(tw_thread*, void* to, const void* from, uint32_t bytes);
  void (*store_global)(tw_thread*, void* to, const void* from, uint32_t bytes);
  void (*atomic_add)(tw_thread*, void*, uint32_t type, double x);
  void (*ldmatrix4)(tw_thread*, uint32_t* r, const void* row, int transposed);
  void (*stmatrix4_transposed)(tw_thread*, void* row, const uint32_t* r);
  void (*mma_16x8x16)(tw_thread*, float* d, const uint32_t* a, uint32_t b0, uint32_t b1,
                      int bfloat);
  void (*mma_16x8x8_tf32)(tw_thread*, float* d, const uint32_t* a, uint32_t b0, uint32_t b1);
  void (*wmma_load)(tw_thread*, uint32_t* r, const void*, int stride, int is_b, int transposed);
  void (*wmma_load_sums)(tw_thread*, float* r, const float*, int stride);
  void (*wmma_store_sums)(tw_thread*, float*, const float* r, int stride);
  void (*wmma_multiply)(tw_thread*, float* s, const uint32_t* a, const uint32_t* b,
                        int a_transposed, int b_transposed);
  void (*mbarriers_made)(tw_thread*);
  void (*mbarrier_arrive_expecting)(tw_thread*, void*, uint32_t bytes);
  void (*load_box)(tw_thread*, void* shared, const tw_box_map*, void* mbarrier, int x, int y,
                   int z);
  void (*load_box_for)(tw_thread*, void* shared, const tw_box_map*, void* mbarrier, int x, int y,
                       int z, uint32_t mask);
  void (*load_box_of_images)(tw_thread*, void* shared, const tw_box_map*, void* mbarrier,
                             const int at[5]);
  void (*mbarrier_arrive_of_block)(tw_thread*, void*, uint32_t rank);
  void (*store_box)(tw_thread*, const tw_box_map*, const void* shared, int x, int y, int z);
  void (*store_boxes_commit)(tw_thread*);
  void (*store_boxes_read)(tw_thread*, int groups);
  void (*launches_ended)(tw_thread*);
  void (*shared_for_async)(tw_thread*);
  void (*wgmma_begin)(tw_thread*);
  void (*wgmma)(tw_thread*, float* d, int columns, uint64_t a, uint64_t b, int add, int flags);
  /* d += a * b with the left operand in registers: a thread's four words of it. */
  void (*wgmma_registers)(tw_thread*, float* d, int columns, const uint32_t* a, uint64_t b,
                          int flags);
  void (*wgmma_commit)(tw_thread*);
  void (*wgmma_wait)(tw_thread*, int groups);
  void (*cluster_sync)(tw_thread*);
  void (*load_of_block)(tw_thread*, void* to, const void* shared, uint32_t rank);
} tw_device_api;

/* Bytes of a fiber's stack, a power of two. */
#define TW_STACK_BYTES ((uintptr_t)262144)

struct tw_thread {
  tw_device_api api;        /* a copy, so that it too lies in the stack */
  unsigned char* shared;    /* the block's dynamic shared memory, from a multiple of 1024 */
  uint32_t thread, block;   /* threadIdx.x, blockIdx.x */
  uint32_t threads, blocks; /* blockDim.x, gridDim.x */
  void* fiber;              /* the runtime's */
};

/* What a compiled module exports:
 *   int tw_host_parameters_NAME(void)    pointers that kernel NAME takes
 *   void tw_host_call_NAME(void* const*) runs it, on a fiber's stack */

#ifdef __cplusplus
}
#endif
#endif
