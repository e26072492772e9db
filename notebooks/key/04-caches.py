"""The key of 04-caches.ipynb, for those who teach. A section an exercise; each runs where its cell stands."""

# exercise 4.1
# Rows of B and D share sets.
answer_4_1 = read_bytes("row-major") / read_bytes("tiled")

# exercise 4.2
# Strides of 1 KiB meet in few sets until there are many ways.
answer_4_2 = next(w for w in (1, 2, 4, 8, 16, 32, 64, 128, 256) if read_bytes("row-major", w) <= 1.05 * read_bytes("row-major", 256))
