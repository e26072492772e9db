"""The key of 08-layer-norm.ipynb, for those who teach. A section an exercise; each runs where its cell stands."""

# exercise 8.1
# A buffer holds one tile; if the tile is the whole of gain, the next row finds it there.
answer_8_1 = 128

# exercise 8.2
# Every operator of the seven reads and writes whole tensors.
answer_8_2 = (lambda f: float((f["read_bytes"] + f["written_bytes"]).sum()))(separate.frame()) / (lambda f: float((f["read_bytes"] + f["written_bytes"]).sum()))(tw.simulate(norm, "scratchpad:64K", tree=stitched_tree, tiles={"c": 128}).frame())

# exercise 8.3
# XLA's rule does not fuse a reduction with what reads it, so intermediates go home.
answer_8_3 = (lambda p: p["xla-rule"] / p["fusionstitching"])({r["model"]: r["exact_bytes"] for r in compared["plans"]})
