"""The key of 05-search-spaces.ipynb, for those who teach. A section an exercise; each runs where its cell stands."""

# exercise 5.1
# 4! deep ones and two flat ones, ml(k,n) and lm(k,n).
answer_5_1 = best["candidates"]["expressions"]["generated"]

# exercise 5.2
# All of the generated over what rule 4 leaves.
answer_5_2 = best["candidates"]["generated"] / best["candidates"]["after"]["rule4"]
