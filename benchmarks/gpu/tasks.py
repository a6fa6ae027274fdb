"""All tasks, the most telling first."""

from benchmarks.gpu import cells, check, kernels, loops, steps, tuned

TASKS = (*check.TASKS, *kernels.TASKS, *steps.TASKS, *loops.TASKS, *cells.TASKS, *tuned.TASKS)
