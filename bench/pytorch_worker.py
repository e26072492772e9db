# Computes a problem with PyTorch, as a process of its own beside the benchmark, which tells it on
# standard input, a line each, what to do; each answer is one line. PyTorch brings its own BLAS and
# OpenMP, which must not meet the ones that the benchmark has open.
#   about              version and the BLAS that it was built on
#   load DIR threads   DIR/problem.json: {"inputs": {name: shape}, "steps": [...], "outputs": [name]};
#                      DIR/NAME.f32: raw float32, row-major; `store` writes the outputs' files. A step is
#                      ["product", a, b, to, relu], ["attention", q, k, v, to] or
#                      ["convolution", image, weights, to, stride, relu, rows, columns]
#   run                all steps once: the seconds that they took
#   store              the last results into their files
import json
import sys
import time


def quiet():
    """Waits until OpenMP's threads have stopped spinning, at most 0.1 s."""
    start = time.perf_counter()
    while time.perf_counter() - start < 0.1:
        used, nap = time.process_time(), time.perf_counter()
        time.sleep(0.002)
        if time.process_time() - used < 0.1 * (time.perf_counter() - nap):
            return


def bound_blas(threads):
    """Tells a BLAS with threads of its own, which torch.set_num_threads does not reach."""
    import ctypes

    with open("/proc/self/maps") as maps:
        paths = {m.split()[-1] for m in maps if "/" in m}
    for path in paths:
        for word, function in (("openblas", "openblas_set_num_threads"),
                               ("blis", "bli_thread_set_num_threads"),
                               ("mkl_rt", "MKL_Set_Num_Threads")):
            if word in path.split("/")[-1] and ".so" in path:
                try:
                    getattr(ctypes.CDLL(path), function)(threads)
                except (OSError, AttributeError):
                    pass


def main():
    # Standard output carries answers only, whatever a library prints.
    answers, sys.stdout = sys.stdout, sys.stderr
    import torch

    torch.set_grad_enabled(False)
    folder, problem, tensors = None, None, {}

    def read(name, shape):
        count = 1
        for extent in shape:
            count *= extent
        return torch.from_file(f"{folder}/{name}.f32", size=count, dtype=torch.float32).clone().view(shape)

    def convolved(image, weights, stride, rows, columns):
        height, width = weights.shape[2:]
        # What the last window reads beyond the edge may be less than what the first one does.
        behind = [(n - 1) * stride + k - k // 2 - have for n, k, have in
                  ((rows, height, image.shape[-2]), (columns, width, image.shape[-1]))]
        if behind == [height // 2, width // 2]:
            return torch.nn.functional.conv2d(image, weights, stride=stride, padding=(height // 2, width // 2))
        padded = torch.nn.functional.pad(image, (width // 2, behind[1], height // 2, behind[0]))
        return torch.nn.functional.conv2d(padded, weights, stride=stride)

    def compute():
        for kind, *step in problem["steps"]:
            if kind == "product":
                a, b, to, relu = step
                tensors[to] = torch.matmul(tensors[a], tensors[b])
            elif kind == "attention":
                q, k, v, to = step
                relu = False
                tensors[to] = torch.nn.functional.scaled_dot_product_attention(
                    *(tensors[t].view(1, -1, *tensors[t].shape[-2:]) for t in (q, k, v)), scale=1)
            else:
                image, weights, to, stride, relu, rows, columns = step
                tensors[to] = convolved(tensors[image], tensors[weights], stride, rows, columns)
            if relu:
                torch.relu_(tensors[to])

    for line in sys.stdin:
        verb, *words = line.split()
        answer = "ok"
        if verb == "about":
            config = " ".join(torch.__config__.show().split())
            blas = [w.rstrip(",") for w in config.replace("BLAS_INFO=", "\x00BLAS=").split() if "\x00BLAS=" in w]
            answer = f"{torch.__version__}; " + (blas[0].lstrip("\x00") if blas else "BLAS unnamed")
            answer += f"; MKL {'yes' if torch.backends.mkl.is_available() else 'no'}"
            answer += f"; oneDNN {'yes' if torch.backends.mkldnn.is_available() else 'no'}"
            with open("/proc/self/maps") as maps:
                names = {m.split("/")[-1].strip() for m in maps if "/" in m}
            answer += "; loaded: " + " ".join(
                sorted(n for n in names if ".so" in n and any(b in n for b in ("blas", "blis", "mkl", "dnnl"))))
        elif verb == "load":
            folder, threads = words[0], int(words[1])
            torch.set_num_threads(threads)
            bound_blas(threads)
            with open(f"{folder}/problem.json") as f:
                problem = json.load(f)
            tensors = {name: read(name, shape) for name, shape in problem["inputs"].items()}
        elif verb == "run":
            start = time.perf_counter()
            compute()
            answer = repr(time.perf_counter() - start)
            quiet()
        elif verb == "store":
            for name in problem["outputs"]:
                torch.from_file(f"{folder}/{name}.f32", shared=True, size=tensors[name].numel(),
                                dtype=torch.float32).copy_(tensors[name].reshape(-1))
        print(answer, file=answers, flush=True)


main()
