"""The key of 03-tiles.ipynb, for those who teach. A section an exercise; each runs where its cell stands."""

# exercise 3.1
# The formula with alpha = 1 and MC = 8192.
answer_3_1 = -1 + (1 + 8192) ** 0.5

# exercise 3.2
# Integers and loop ends cost some 6 % here.
answer_3_2 = said["orders"][0]["volume_elements"] / closed["volume_real_elements"]
