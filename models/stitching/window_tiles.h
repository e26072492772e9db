// Windows whose points share what they read: a thread has a tile of points along and down an image,
// a block the image's part that all of its windows cover.
#pragma once

#include <functional>

#include "models/stitching/part.h"

namespace tilewright::stitching {

/// Of a part that is nothing but sums of windows, each of its own point, and operators of points;
/// none of any other.
std::optional<WindowLoops> window_loops(const Graph& g, const Component& c);
/// Every tile of a thread that is tried, as Stitched::window_along and window_down.
void each_window_tile(const Graph& g, const WindowLoops& loops, Stitched& s,
                      const std::function<void(Stitched&)>& f);
/// Such a part's tree, at level `registers`: `b/1@grid c/1@grid y/28@grid ( L.X@registers
/// L.W@registers y/14@warp y/7@lane x/4@lane ( r/1 s/1 ( C.sum ) C.bias ) )`. Lanes that the image
/// leaves are the next loop's. Channels that lie side by side are lanes: `y/8@grid x/8@grid
/// c/32@grid ( L.X@registers L.W@registers y/4@warp x/4@warp c/1@lane ( r/1 s/1 ( C.sum ) ) )`. A
/// Reason where threads would have nothing to do.
Result<BoundTree> window_tree(const Graph& g, const Stitched& s, std::int64_t threads);

}  // namespace tilewright::stitching
