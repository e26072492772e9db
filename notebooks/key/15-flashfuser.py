"""The key of 15-flashfuser.ipynb, for those who teach. A section an exercise; each runs where its cell stands."""

# exercise 15.1
# l / (n / k) has to be whole, too; the paper's count, 135, does not ask for that.
answer_15_1 = sum(m * k * l <= 16 and n % k == 0 and l % (n // k) == 0
                  for m in (1, 2, 4, 8, 16) for n in (1, 2, 4, 8, 16) for k in (1, 2, 4, 8, 16) for l in (1, 2, 4, 8, 16))

# exercise 15.2
# 4 clusters, 15 parts that move, 256 x 4096 elements, 4 bytes.
answer_15_2 = 4 * 15 * 256 * 4096 * 4

# exercise 15.3
# E is added 64 times without clusters, 4 times with them.
answer_15_3 = (64 - 4) * 256 * 4096 * 2

# exercise 15.4
# At 3.27 TB/s DSM takes 158.7 us and memory 163.3.
answer_15_4 = 3.27 * chosen["by_level"][1]["seconds"] / chosen["by_level"][0]["seconds"]
