"""The key of 09-kernels.ipynb, for those who teach. A section an exercise; each runs where its cell stands."""

# exercise 9.1
# run() says it; it depends on the vector registers of this machine.
answer_9_1 = timed["micro_kernel"]

# exercise 9.2
# Near 1: with rows as the kernel has them, the plan's misses are mostly conflicts, and the kernel has them too.
answer_9_2 = counted["traffic"][0]["read_bytes"] / sum(t["read_bytes"] for t in tw.simulate(small, "xeon-gold-6240", model="chimera", layout="row-major")["traffic"] if t["boundary"] == "L2/L1")
