"""The key of 00-loop-nests.ipynb, for those who teach. A section an exercise; each runs where its cell stands."""

# exercise 0.1
# A's tile does not change while n runs inside: each of its elements comes once.
answer_0_1 = 48 * 64 * 4

# exercise 0.2
# C is gone through once for each of the four turns of k. The first starts at zero, the other three read it back.
answer_0_2 = 3 * 48 * 32 * 4

# exercise 0.3
# n walks E's row of tiles for every tile of l. One tile of l as large as the range: E is never visited twice.
answer_0_3 = 64
