// The table that compiled kernels call: each entry finds its fiber and its place, and goes to the engine.
#include "simulator/cuda_host/engine.h"

namespace tilewright::cuda_host {

namespace {

Fiber& fiber(tw_thread* t) { return *static_cast<Fiber*>(t->fiber); }

}  // namespace

// The return address is the kernel's: compiled code comes here through the table, never inlined.
#define TW_AT(T) Fiber& f = fiber(T); Engine& e = *f.owner->engine
#define TW_PLACE e.place_of(__builtin_return_address(0))

const tw_device_api* Engine::api() {
  static constexpr tw_device_api kTable = {
      .access = [](tw_thread* t, const void* p, std::uint64_t bytes, std::uint32_t flags,
                   const void* place) {
        TW_AT(t);
        e.access(f, p, static_cast<std::int64_t>(bytes), flags, e.place_of(place));
      },
      .block_sync = [](tw_thread* t) { TW_AT(t); e.block_sync(f, TW_PLACE); },
      .warp_sync = [](tw_thread* t) { TW_AT(t); e.warp_sync(f, TW_PLACE); },
      .barrier = [](tw_thread* t, int id, int n) { TW_AT(t); e.barrier(f, id, n, TW_PLACE); },
      .grid_sync = [](tw_thread* t, std::uint32_t* p) { TW_AT(t); e.grid_sync(f, p, TW_PLACE); },
      .shuffle = [](tw_thread* t, std::uint32_t bits, int how, int operand) {
        TW_AT(t);
        return e.shuffle(f, bits, how, operand, TW_PLACE);
      },
      .ballot = [](tw_thread* t, int p) { TW_AT(t); return e.ballot(f, p != 0, TW_PLACE); },
      .mbarrier_init = [](tw_thread* t, void* p, std::uint32_t n) {
        TW_AT(t);
        e.mbarrier_init(f, p, n, TW_PLACE);
      },
      .mbarrier_arrive = [](tw_thread* t, void* p) {
        TW_AT(t);
        e.mbarrier_arrive(f, p, false, TW_PLACE);
      },
      .mbarrier_arrive_after_copies = [](tw_thread* t, void* p) {
        TW_AT(t);
        e.mbarrier_arrive(f, p, true, TW_PLACE);
      },
      .mbarrier_wait = [](tw_thread* t, void* p, std::uint32_t parity) {
        TW_AT(t);
        e.mbarrier_wait(f, p, parity, TW_PLACE);
      },
      .cp_async16 = [](tw_thread* t, void* to, const void* from, int valid) {
        TW_AT(t);
        e.cp_async16(f, to, from, valid, TW_PLACE);
      },
      .cp_async_commit = [](tw_thread* t) { TW_AT(t); e.cp_async_commit(f); },
      .cp_async_wait = [](tw_thread* t, int n) { TW_AT(t); e.cp_async_wait(f, n, TW_PLACE); },
      .load_global = [](tw_thread* t, void* to, const void* from, std::uint32_t bytes) {
        TW_AT(t);
        e.load_global(f, to, from, static_cast<int>(bytes), TW_PLACE);
      },
      .store_global = [](tw_thread* t, void* to, const void* from, std::uint32_t bytes) {
        TW_AT(t);
        e.store_global(f, to, from, static_cast<int>(bytes), TW_PLACE);
      },
      .atomic_add = [](tw_thread* t, void* p, std::uint32_t type, double x) {
        TW_AT(t);
        e.atomic_add(f, p, type, x, TW_PLACE);
      },
      .ldmatrix4 = [](tw_thread* t, std::uint32_t* r, const void* row, int transposed) {
        TW_AT(t);
        e.ldmatrix4(f, r, row, transposed != 0, TW_PLACE);
      },
      .mma_16x8x16 = [](tw_thread* t, float* d, const std::uint32_t* a, std::uint32_t b0,
                        std::uint32_t b1, int bfloat) {
        TW_AT(t);
        e.mma(f, d, a, b0, b1, bfloat != 0, TW_PLACE);
      },
      .wmma_load = [](tw_thread* t, std::uint32_t* r, const void* p, int stride, int is_b,
                      int transposed) {
        TW_AT(t);
        e.wmma_load(f, r, p, stride, is_b != 0, transposed != 0, TW_PLACE);
      },
      .wmma_load_sums = [](tw_thread* t, float* r, const float* p, int stride) {
        TW_AT(t);
        e.wmma_sums(f, r, const_cast<float*>(p), stride, false, TW_PLACE);
      },
      .wmma_store_sums = [](tw_thread* t, float* p, const float* r, int stride) {
        TW_AT(t);
        e.wmma_sums(f, const_cast<float*>(r), p, stride, true, TW_PLACE);
      },
      .wmma_multiply = [](tw_thread* t, float* s, const std::uint32_t* a, const std::uint32_t* b,
                          int a_transposed, int b_transposed) {
        TW_AT(t);
        e.wmma_multiply(f, s, a, b, a_transposed != 0, b_transposed != 0, TW_PLACE);
      },
  };
  return &kTable;
}

#undef TW_PLACE
#undef TW_AT

}  // namespace tilewright::cuda_host
