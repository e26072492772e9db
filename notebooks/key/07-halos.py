"""The key of 07-halos.ipynb, for those who teach. A section an exercise; each runs where its cell stands."""

# exercise 7.1
# (T + 8) / T over (256 + 8) / 256 is at most 1.1 from T = 64 on.
answer_7_1 = next(t for t in (1, 2, 4, 8, 16, 32, 64, 128, 256) if run(t)["operations"]["conv1"] <= 1.1 * run(256)["operations"]["conv1"])

# exercise 7.2
# M is written and read once per tile, its halo included.
answer_7_2 = total(run(8, pins={"M": "dram"})) - total(run(8))
