"""The key of 06-softmax.ipynb, for those who teach. A section an exercise; each runs where its cell stands."""

# exercise 6.1
# 16 rows of 512 scores of 4 bytes.
answer_6_1 = 16 * 512 * 4

# exercise 6.2
# K has 512 x 64 elements and comes once for each of 64 / 16 blocks of rows.
answer_6_2 = 512 * 64 * 4 * (64 // 16)
