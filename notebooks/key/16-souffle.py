"""The key of 16-souffle.ipynb, for those who teach. A section an exercise; each runs where its cell stands."""

# exercise 16.1
# 2 n k operations; a row of the input, the weights, a row of the result.
answer_16_1 = 2 * 768 * 768 / (768 + 768 * 768 + 768)

# exercise 16.2
# X0 is read once instead of three times, each layer normalisation's tensor once instead of twice.
answer_16_2 = (2 + 1 + 1) * 384 * 768 * 2

# exercise 16.3
# Two blocks an SM: 228 KiB hold 2 of 108 KiB, not 2.1.
answer_16_3 = 228 // 108 * 132

# exercise 16.4
# 8 within each layer, and one between any two.
answer_16_4 = 12 * 8 + 11

# exercise 16.5
# A line through the time at 1 us, 8 barriers steep.
answer_16_5 = 1 + (separate - tw.plan(layer, "h200", model="souffle", sync_us=1)["seconds"] * 1e6) / 8
