"""The key of 14-mcfuser.ipynb, for those who teach. A section an exercise; each runs where its cell stands."""

# exercise 14.1
# 512/16, 256/16, 64/16 and 256/16 sizes; loops are independent.
answer_14_1 = 32 * 16 * 4 * 16

# exercise 14.2
# (64 + 108) / 64.
answer_14_2 = (64 + 108) / 64

# exercise 14.3
# Each of the 32 blocks loads B whole.
answer_14_3 = 32

# exercise 14.4
# The same plan under the price that charges every block, over the best under that price.
answer_14_4 = (tw.predict(best["plan"], model="mcfuser", hoist="block")["seconds"]
               / tw.plan(chain, "a100", model="mcfuser", hoist="block")["seconds"])
