"""What a node is made of and grants, from trees of files as Linux writes them, and from this machine."""

from __future__ import annotations

import os
import shutil

import pytest

from mpifl.common.machine import granted_cores, hardware, scratch_room


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/cpu.max": "150000 100000"}, 1.5),
        (
            {
                "proc/self/cgroup": "0::/a/b",
                "sys/fs/cgroup/a/cpu.max": "400000 100000",
                "sys/fs/cgroup/a/b/cpu.max": "max 100000",
            },
            4.0,
        ),
        (
            {
                "proc/self/cgroup": "3:cpuset:/\n2:cpu,cpuacct:/job\n0::/",
                "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us": "50000",
                "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us": "100000",
            },
            0.5,
        ),
        (
            {
                "proc/self/cgroup": "1:cpu:/",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            None,
        ),
        ({"proc/self/cgroup": "0::/a", "sys/fs/cgroup/a/cpu.max": "max 100000"}, None),
        ({}, None),
    ],
    ids=["v2 above", "v2 least", "v1", "v1 none", "v2 none", "not Linux"],
)
def test_control_groups_grant_what_the_least_of_them_grants(tmp_path, files, cores):
    write(tmp_path, files)
    assert granted_cores(tmp_path) == cores


def test_sets_caches_and_numa_are_those_of_this_process(tmp_path):
    core = min(os.sched_getaffinity(0))
    cache = f"sys/devices/system/cpu/cpu{core}/cache"
    files = {
        "proc/cpuinfo": "model name\t: x\nflags\t\t: fpu avx avx2 fma bogus avx512f",
        **{
            f"{cache}/index0/{name}": text for name, text in (("level", 1), ("type", "Data"), ("size", "32K"))
        },
        **{
            f"{cache}/index1/{name}": text
            for name, text in (("level", 1), ("type", "Instruction"), ("size", "9K"))
        },
        **{
            f"{cache}/index2/{name}": text
            for name, text in (("level", 2), ("type", "Unified"), ("size", "1024K"))
        },
        "sys/devices/system/node/node0/cpulist": f"{core}-{core + 1},100000",
        "sys/devices/system/node/node1/cpulist": "200000",
    }
    write(tmp_path, files)
    told = {"instructions": "avx avx2 fma avx512f", "caches": "L1 32K, L2 1024K"}
    assert hardware(tmp_path) == {**told, "numa": "0 of 2"}
    assert hardware(tmp_path / "none") == {}
    assert set(hardware()) <= {"instructions", "caches", "numa"}


def test_room_is_what_the_file_systems_say():
    assert set(scratch_room()) <= {"/tmp", "/dev/shm"}
    assert all(0 <= free <= shutil.disk_usage(folder).total for folder, free in scratch_room().items())
