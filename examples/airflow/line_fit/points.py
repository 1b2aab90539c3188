"""Points on the line y = 3x - 1, and the share of them that a process uses."""

POINTS = [[x / 4, 3 * x / 4 - 1] for x in range(6)]


def select_share(rank: int, processes: int) -> list[list[float]]:
    return POINTS[rank::processes]


def measure_error(weight: float, bias: float) -> float:
    return max(abs(weight * x + bias - y) for x, y in POINTS)
