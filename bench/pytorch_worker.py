# Computes a GEMM chain with PyTorch, as a process of its own beside the benchmark, which tells it on
# standard input, a line each, what to do; each answer is one line. PyTorch brings its own BLAS and
# OpenMP, which must not meet the ones that the benchmark has open.
#   about                            version and the BLAS that it was built on
#   load DIR batch m n k l threads   DIR/{a,b,d,e}.f32: raw float32, row-major; e is written by `store`
#   run                              both products once: the seconds that they took
#   store                            the last result into DIR/e.f32
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
    chain = result = folder = None

    def read(name, *shape):
        count = 1
        for extent in shape:
            count *= extent
        return torch.from_file(f"{folder}/{name}.f32", size=count, dtype=torch.float32).clone().view(shape)

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
            folder = words[0]
            batch, m, n, k, l, threads = map(int, words[1:])
            torch.set_num_threads(threads)
            bound_blas(threads)
            chain = read("a", batch, m, k), read("b", batch, k, l), read("d", batch, l, n)
            middle = torch.empty(batch, m, l)
            result = torch.empty(batch, m, n)
        elif verb == "run":
            start = time.perf_counter()
            torch.bmm(chain[0], chain[1], out=middle)
            torch.bmm(middle, chain[2], out=result)
            answer = repr(time.perf_counter() - start)
            quiet()
        elif verb == "store":
            torch.from_file(f"{folder}/e.f32", shared=True, size=result.numel(),
                            dtype=torch.float32).copy_(result.view(-1))
        print(answer, file=answers, flush=True)


main()
