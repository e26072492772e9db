"""The key of 10-your-model.ipynb, for those who teach. A section an exercise; each runs where its cell stands."""

# exercise 10.1
# Chimera's Algorithm 1: from the innermost loop outwards, once a loop indexes the tensor, it and all around
# it bring the tile again. With the trips of every loop counted in full this is the paper's "full edges".
import math


class Mine(tw.Model):
    "Algorithm 1 again."
    name = "mine"

    def moved(self, workload, loops, operator, access):
        tiles = dict(loops)
        moved = workload.footprint(access, tiles) * workload.tensors[access.tensor].element_bytes
        reached = False
        for loop, tile in reversed([(n, t) for n, t in loops if n in operator.loops]):
            reached = reached or loop in access.loops
            if reached:
                moved *= math.ceil(workload.loops[loop] / tile)
        return moved

    def predict(self, question):
        w = question.workload
        loops = [(n.name, n.step) for n, _ in question.kernels[0].nodes.walk() if n.kind == "loop"]
        read, written = {}, {}
        for operator in w.operators:
            for access in operator.reads + operator.writes:
                if access.tensor in w.inputs:
                    read[access.tensor] = self.moved(w, loops, operator, access)
                elif access.tensor in w.outputs:
                    written[access.tensor] = self.moved(w, loops, operator, access)
        return tw.Price(read_bytes=read, written_bytes=written)


answer_10_1 = Mine()
