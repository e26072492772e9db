"""The key of 01-roofline.ipynb, for those who teach. A section an exercise; each runs where its cell stands."""

# exercise 1.1
# 2 n³ operations over 3 n² elements of 4 bytes: n / 6.
answer_1_1 = 2 * 512**3 / (3 * 512**2 * 4)

# exercise 1.2
# The ridge is 2995.2 / 131 = 22.9 FLOP/byte, and n / 6 passes it between 128 and 256.
answer_1_2 = 256
