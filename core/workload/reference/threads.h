// Independent pieces of the evaluator's work on several threads. Internal to the evaluator.
#pragma once

#include <cstdint>
#include <functional>

namespace tilewright::reference {

/// How many threads `asked` stands for: itself, or, where it is 0, as many as there are cores.
int threads_for(int asked);

/// Calls work(i) once for every i in [0, pieces), on up to `threads` threads (threads_for). Work
/// must not throw, and which piece is done by whom must not show in what it computes.
void for_each_piece(std::int64_t pieces, int threads,
                    const std::function<void(std::int64_t)>& work);

/// Calls work(begin, end) over [0, n) in pieces of kPiece, the last one shorter. The pieces are the
/// same whatever the number of threads.
inline constexpr std::int64_t kPiece = std::int64_t{1} << 16;
void for_each_range(std::int64_t n, int threads,
                    const std::function<void(std::int64_t, std::int64_t)>& work);

}  // namespace tilewright::reference
