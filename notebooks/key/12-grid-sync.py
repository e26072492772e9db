"""The key of 12-grid-sync.ipynb, for those who teach. A section an exercise; each runs where its cell stands."""

# exercise 12.1
# A block still has its channel when it scales it: all of X once, 32 channels of 112 by 112 elements of 4 bytes.
answer_12_1 = 32 * 112 * 112 * 4

# exercise 12.2
# X once more; all else is small.
answer_12_2 = (lambda f, g: float(g["read_bytes"].sum() / f["read_bytes"].sum()))(kept.frame(), dropped.frame())

# exercise 12.3
# Seconds of a barrier times bytes a second.
answer_12_3 = barrier * memory
