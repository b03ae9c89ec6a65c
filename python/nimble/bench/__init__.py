"""The benchmark suite: `nimble bench`, or `python -m nimble.bench`.

One file for each system (systems/) and each family of workloads (workloads/). Everybody gets the same weights, inputs
and settings, and is compared with eager before anything is timed. Those who share eager's kernels are timed in eager's
process, in turn; compilers each in a process of their own, in turn with an eager there.
"""
