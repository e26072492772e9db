"""What `graphs` prints of a recording: times side by side, their ratios and geometric means, counted bytes."""
from device import geometric_mean

PEERS = ("xla", "compile", "autotune", "eager")


def number(row, contestant, key):
    found = row["contestants"].get(contestant, {})
    return None if "reason" in found else found.get(key)


def least(row, key):
    found = [x for x in (number(row, c, key) for c in PEERS) if x]
    return min(found) if found else None


def ratios_of(row):
    wall, kernels = number(row, "ours", "seconds_median"), number(row, "ours", "kernel_seconds")
    pairs = {"kernels_over_xla": (number(row, "xla", "kernel_seconds"), kernels),
             "wall_over_xla": (number(row, "xla", "seconds_median"), wall),
             "kernels_over_best": (least(row, "kernel_seconds"), kernels),
             "wall_over_best": (least(row, "seconds_median"), wall)}
    return {name: other / ours for name, (other, ours) in pairs.items() if other and ours}


def means_of(rows):
    """Geometric means of the others' times over ours; above 1 ours is faster."""
    means = {}
    for group in ("large", "small", "all"):
        gathered = {}
        for row in rows:
            if group in ("all", row["size"]):
                for name, ratio in ratios_of(row).items():
                    gathered.setdefault(name, []).append(ratio)
        for name, found in gathered.items():
            means[f"{group} {name}"] = {"geometric_mean": geometric_mean(found),
                                        "rows": len(found)}
    return means


def cell(value, scale=1e6, digits=2):
    return f"{value * scale:9.{digits}f}" if value else f"{'-':>9}"


def print_table(document):
    # Ours by measurement, where it was: information, and in no ratio.
    measured = any("tuned" in row["contestants"] for row in document.get("rows", []))
    columns = ("ours", *(["tuned"] if measured else []), *PEERS)
    for title, key in (("wall us a run", "seconds_median"), ("kernels us a run", "kernel_seconds")):
        print(f"{title:<27}" + "".join(f"{c:>9}" for c in columns) + f"{'xla/ours':>10}{'best/ours':>10}")
        for row in document.get("rows", []):
            ratios = ratios_of(row)
            short = "kernels" if key == "kernel_seconds" else "wall"
            print(f"{row['workload']:<20}{row['size']:<7}"
                  + "".join(cell(number(row, c, key)) for c in columns)
                  + f" {cell(ratios.get(f'{short}_over_xla'), 1)} {cell(ratios.get(f'{short}_over_best'), 1)}")
        print()
    for row in document.get("rows", []):
        for name, found in row["contestants"].items():
            if "reason" in found:
                print(f"{row['workload']} {row['size']} {name}: {found['reason'][:160]}")
    for name, mean in means_of(document.get("rows", [])).items():
        print(f"{name:<24} {mean['geometric_mean']:.2f} over {mean['rows']} rows")
    print_counters(document.get("counters", {}))
    print_ranking(document.get("ranking", {}))


def print_counters(counters):
    for point in counters.get("points", []):
        metrics = point["counted"]["all"]["metrics"]
        read, once = metrics["dram__bytes_read.sum"], point["predicted"]["each_kernel_once"]["read_bytes"]
        print(f"{point['workload']:<58} MB from memory: compulsory {point['compulsory_read_bytes'] / 1e6:.1f}, "
              f"each kernel once {once / 1e6:.1f}, counted {read / 1e6:.1f}")
    for point in counters.get("failed", []):
        print(f"{point.get('workload', 'counters')}: {point['reason'][:160]}")


def print_ranking(ranking):
    """What the model's first choice among the drawn schedules loses; `reproduce fusionstitching/ranking`
    has the correlations."""
    for workload, found in ranking.items():
        points = found["points"]
        if not points:
            print(f"ranking {workload}: {found['failed'][0]['reason'][:160] if found['failed'] else 'nothing'}")
            continue
        first = min(points, key=lambda p: p["predicted_seconds"])
        fastest = min(points, key=lambda p: p["seconds_median"])
        print(f"ranking {workload}: {len(points)} schedules; the first choice takes "
              f"{first['seconds_median'] / fastest['seconds_median']:.2f} times the fastest "
              f"({cell(fastest['seconds_median']).strip()} us: {fastest['schedule']})")
