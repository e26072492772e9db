// The table that compiled kernels call: each entry finds its fiber and its place, and goes to the
// engine.
#include "simulator/cuda_host/engine.h"

namespace tilewright::cuda_host {

namespace {

// Functions, not lambdas: a lambda's conversion may leave a frame of ours between it and the
// kernel, whose return address is what each of them wants.
#define TW_ENTER(T)                            \
  Fiber& f = *static_cast<Fiber*>((T)->fiber); \
  Engine& e = *f.owner->engine;                \
  const std::uint32_t place = e.place_of(__builtin_return_address(0))

void access(tw_thread* t, const void* p, std::uint64_t bytes, std::uint32_t flags,
            const void* from) {
  Fiber& f = *static_cast<Fiber*>(t->fiber);
  Engine& e = *f.owner->engine;
  e.access(f, p, static_cast<std::int64_t>(bytes), flags, e.place_of(from));
}
void block_sync(tw_thread* t) {
  TW_ENTER(t);
  e.block_sync(f, place);
}
void warp_sync(tw_thread* t) {
  TW_ENTER(t);
  e.warp_sync(f, place);
}
void barrier(tw_thread* t, int id, int threads) {
  TW_ENTER(t);
  e.barrier(f, id, threads, place);
}
void grid_sync(tw_thread* t, std::uint32_t* counter) {
  TW_ENTER(t);
  e.grid_sync(f, counter, place);
}
std::uint32_t shuffle(tw_thread* t, std::uint32_t bits, int how, int operand) {
  TW_ENTER(t);
  return e.shuffle(f, bits, how, operand, place);
}
std::uint32_t ballot(tw_thread* t, int predicate) {
  TW_ENTER(t);
  return e.ballot(f, predicate != 0, place);
}
void mbarrier_init(tw_thread* t, void* p, std::uint32_t arrivals) {
  TW_ENTER(t);
  e.mbarrier_init(f, p, arrivals, place);
}
void mbarrier_arrive(tw_thread* t, void* p) {
  TW_ENTER(t);
  e.mbarrier_arrive(f, p, false, place);
}
void mbarrier_arrive_after_copies(tw_thread* t, void* p) {
  TW_ENTER(t);
  e.mbarrier_arrive(f, p, true, place);
}
void mbarrier_wait(tw_thread* t, void* p, std::uint32_t parity) {
  TW_ENTER(t);
  e.mbarrier_wait(f, p, parity, place);
}
void cp_async(tw_thread* t, void* shared, const void* global, int bytes, int valid) {
  TW_ENTER(t);
  e.cp_async(f, shared, global, bytes, valid, place);
}
void cp_async_commit(tw_thread* t) {
  Fiber& f = *static_cast<Fiber*>(t->fiber);
  f.owner->engine->cp_async_commit(f);
}
void cp_async_wait(tw_thread* t, int groups) {
  TW_ENTER(t);
  e.cp_async_wait(f, groups, place);
}
void load_global(tw_thread* t, void* to, const void* from, std::uint32_t bytes) {
  TW_ENTER(t);
  e.load_global(f, to, from, static_cast<int>(bytes), place);
}
void store_global(tw_thread* t, void* to, const void* from, std::uint32_t bytes) {
  TW_ENTER(t);
  e.store_global(f, to, from, static_cast<int>(bytes), place);
}
void atomic_add(tw_thread* t, void* p, std::uint32_t type, double x) {
  TW_ENTER(t);
  e.atomic_add(f, p, type, x, place);
}
void ldmatrix4(tw_thread* t, std::uint32_t* r, const void* row, int transposed) {
  TW_ENTER(t);
  e.ldmatrix4(f, r, row, transposed != 0, place);
}
void stmatrix4_transposed(tw_thread* t, void* row, const std::uint32_t* r) {
  TW_ENTER(t);
  e.stmatrix4_transposed(f, row, r, place);
}
void mma_16x8x16(tw_thread* t, float* d, const std::uint32_t* a, std::uint32_t b0, std::uint32_t b1,
                 int bfloat) {
  TW_ENTER(t);
  e.mma(f, d, a, b0, b1, bfloat != 0, place);
}
void mma_16x8x8_tf32(tw_thread* t, float* d, const std::uint32_t* a, std::uint32_t b0,
                     std::uint32_t b1) {
  TW_ENTER(t);
  e.mma_tf32(f, d, a, b0, b1, place);
}
void wmma_load(tw_thread* t, std::uint32_t* r, const void* p, int stride, int is_b,
               int transposed) {
  TW_ENTER(t);
  e.wmma_load(f, r, p, stride, is_b != 0, transposed != 0, place);
}
void wmma_load_sums(tw_thread* t, float* r, const float* p, int stride) {
  TW_ENTER(t);
  e.wmma_sums(f, r, const_cast<float*>(p), stride, false, place);
}
void wmma_store_sums(tw_thread* t, float* p, const float* r, int stride) {
  TW_ENTER(t);
  e.wmma_sums(f, const_cast<float*>(r), p, stride, true, place);
}
void wmma_multiply(tw_thread* t, float* s, const std::uint32_t* a, const std::uint32_t* b,
                   int a_transposed, int b_transposed) {
  TW_ENTER(t);
  e.wmma_multiply(f, s, a, b, a_transposed != 0, b_transposed != 0, place);
}
void mbarriers_made(tw_thread* t) {
  TW_ENTER(t);
  e.mbarriers_made(f, place);
}
void mbarrier_arrive_expecting(tw_thread* t, void* p, std::uint32_t bytes) {
  TW_ENTER(t);
  e.mbarrier_arrive_expecting(f, p, bytes, place);
}
void load_box(tw_thread* t, void* shared, const tw_box_map* map, void* mbarrier, int x, int y,
              int z) {
  TW_ENTER(t);
  e.load_box(f, shared, *map, mbarrier, {x, y, z, 0, 0}, 0, 3, place);
}
void load_box_for(tw_thread* t, void* shared, const tw_box_map* map, void* mbarrier, int x, int y,
                  int z, std::uint32_t mask) {
  TW_ENTER(t);
  e.load_box(f, shared, *map, mbarrier, {x, y, z, 0, 0}, mask, 3, place);
}
void load_box_of_images(tw_thread* t, void* shared, const tw_box_map* map, void* mbarrier,
                        const int at[5]) {
  TW_ENTER(t);
  e.load_box(f, shared, *map, mbarrier, {at[0], at[1], at[2], at[3], at[4]}, 0, 5, place);
}
void mbarrier_arrive_of_block(tw_thread* t, void* p, std::uint32_t rank) {
  TW_ENTER(t);
  e.mbarrier_arrive_of_block(f, p, rank, place);
}
void store_box(tw_thread* t, const tw_box_map* map, const void* shared, int x, int y, int z) {
  TW_ENTER(t);
  e.store_box(f, *map, shared, {x, y, z, 0, 0}, place);
}
void store_boxes_commit(tw_thread* t) {
  Fiber& f = *static_cast<Fiber*>(t->fiber);
  f.owner->engine->store_boxes_commit(f);
}
void store_boxes_read(tw_thread* t, int groups) {
  TW_ENTER(t);
  e.store_boxes_read(f, groups, place);
}
void launches_ended(tw_thread* t) {
  TW_ENTER(t);
  e.launches_ended(f, place);
}
void shared_for_async(tw_thread* t) {
  TW_ENTER(t);
  e.shared_for_async(f, place);
}
void wgmma_begin(tw_thread* t) {
  TW_ENTER(t);
  e.wgmma_begin(f, place);
}
void wgmma(tw_thread* t, float* d, int columns, std::uint64_t a, std::uint64_t b, int add,
           int flags) {
  TW_ENTER(t);
  e.wgmma(f, d, columns, a, nullptr, b, add != 0, flags, place);
}
void wgmma_registers(tw_thread* t, float* d, int columns, const std::uint32_t* a, std::uint64_t b,
                     int flags) {
  TW_ENTER(t);
  e.wgmma(f, d, columns, 0, a, b, true, flags, place);
}
void wgmma_commit(tw_thread* t) {
  TW_ENTER(t);
  e.wgmma_commit(f, place);
}
void wgmma_wait(tw_thread* t, int groups) {
  TW_ENTER(t);
  e.wgmma_wait(f, groups, place);
}
void cluster_sync(tw_thread* t) {
  TW_ENTER(t);
  e.cluster_sync(f, place);
}
void load_of_block(tw_thread* t, void* to, const void* shared, std::uint32_t rank) {
  TW_ENTER(t);
  e.load_of_block(f, to, shared, rank, place);
}

#undef TW_ENTER

constexpr tw_device_api kTable = {
    .access = access,
    .block_sync = block_sync,
    .warp_sync = warp_sync,
    .barrier = barrier,
    .grid_sync = grid_sync,
    .shuffle = shuffle,
    .ballot = ballot,
    .mbarrier_init = mbarrier_init,
    .mbarrier_arrive = mbarrier_arrive,
    .mbarrier_arrive_after_copies = mbarrier_arrive_after_copies,
    .mbarrier_wait = mbarrier_wait,
    .cp_async = cp_async,
    .cp_async_commit = cp_async_commit,
    .cp_async_wait = cp_async_wait,
    .load_global = load_global,
    .store_global = store_global,
    .atomic_add = atomic_add,
    .ldmatrix4 = ldmatrix4,
    .stmatrix4_transposed = stmatrix4_transposed,
    .mma_16x8x16 = mma_16x8x16,
    .mma_16x8x8_tf32 = mma_16x8x8_tf32,
    .wmma_load = wmma_load,
    .wmma_load_sums = wmma_load_sums,
    .wmma_store_sums = wmma_store_sums,
    .wmma_multiply = wmma_multiply,
    .mbarriers_made = mbarriers_made,
    .mbarrier_arrive_expecting = mbarrier_arrive_expecting,
    .load_box = load_box,
    .load_box_for = load_box_for,
    .load_box_of_images = load_box_of_images,
    .mbarrier_arrive_of_block = mbarrier_arrive_of_block,
    .store_box = store_box,
    .store_boxes_commit = store_boxes_commit,
    .store_boxes_read = store_boxes_read,
    .launches_ended = launches_ended,
    .shared_for_async = shared_for_async,
    .wgmma_begin = wgmma_begin,
    .wgmma = wgmma,
    .wgmma_registers = wgmma_registers,
    .wgmma_commit = wgmma_commit,
    .wgmma_wait = wgmma_wait,
    .cluster_sync = cluster_sync,
    .load_of_block = load_of_block,
};

}  // namespace

const tw_device_api* Engine::api() { return &kTable; }

}  // namespace tilewright::cuda_host
