"""The key of 02-orders.ipynb, for those who teach. A section an exercise; each runs where its cell stands."""

# exercise 2.1
# Count the rows of the ranking that share the first one's movement.
answer_2_1 = (lambda v: v.count(min(v)))([o["volume_elements"] for o in ranked["orders"]])

# exercise 2.2
# B has 48 x 80 elements of 4 bytes and comes whole for each of the 96 / 16 trips of m.
answer_2_2 = 48 * 80 * 4 * (96 // 16)
