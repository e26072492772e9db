"""The key of 11-what-is-wrong.ipynb, for those who teach. A section an exercise; each runs where its cell stands."""

# exercise 11.1
# n has two trips, and gemm1 knows nothing of n.
answer_11_1 = true["operations"]["gemm1"] / (10 * 9 * 7)

# exercise 11.2
# E's tile, 4 x 3 elements of 4 bytes, is alive while gemm1 runs.
answer_11_2 = true["memory"]["L1"] - paper["memory_paper_bytes"]

# exercise 11.3
# The other blocks' loads are not in it.
answer_11_3 = (lambda p: p["volume_bytes"] / p["exact_bytes"])(tw.plan("mcfuser/G1", "a100", model="mcfuser"))
