"""The key of 13-data-movement.ipynb, for those who teach. A section an exercise; each runs where its cell stands."""

# exercise 13.1
# concat and shuffle each read and write all; left and right each read and write a half.
answer_13_1 = 6 * 116 * 784 * 4

# exercise 13.2
# Count the lines that say dram, before and after.
touching = [sum("dram" in line for line in instructions(gir)) for gir in (part["gir_before"], part["rewrites"][-1]["gir"])]
answer_13_2 = touching[0] - touching[1]

# exercise 13.3
# Three kernels: concat and shuffle each go through DRAM once more.
answer_13_3 = 2.0
