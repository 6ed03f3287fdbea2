"""Energy is what counters of this machine have moved by, and nothing where they cannot be read."""

import os
import shutil
import subprocess
import sys

import pytest

from mpifl.common.machine import EnergyMeter

LARGEST = 262_143_328_850


def zone(root, name, kind, value, largest=LARGEST):
    """Write a zone of Linux's powercap."""
    folder = root / "sys/class/powercap" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "name").write_text(f"{kind}\n")
    (folder / "max_energy_range_uj").write_text(f"{largest}\n")
    (folder / "energy_uj").write_text(f"{value}\n")


def test_processors_count_each_package_once_and_beyond_their_range(tmp_path):
    zone(tmp_path, "intel-rapl:0", "package-0", 1_000_000)
    zone(tmp_path, "intel-rapl:0:0", "core", 7)
    zone(tmp_path, "intel-rapl:1", "package-1", LARGEST)
    zone(tmp_path, "intel-rapl-mmio:0", "package-0", 1_000_000)
    zone(tmp_path, "intel-rapl:2", "psys", 9)
    meter = EnergyMeter(tmp_path)
    assert meter.spent() == {"joules_processors": 0.0}
    for name, kind in (("intel-rapl:0", "package-0"), ("intel-rapl-mmio:0", "package-0")):
        zone(tmp_path, name, kind, 3_500_000)
    zone(tmp_path, "intel-rapl:0:0", "core", 5_000_000)
    zone(tmp_path, "intel-rapl:2", "psys", 5_000_000)
    zone(tmp_path, "intel-rapl:1", "package-1", 499_999)
    assert meter.spent() == {"joules_processors": pytest.approx(2.5 + 0.5)}
    (tmp_path / "sys/class/powercap/intel-rapl:1/energy_uj").unlink()
    assert meter.spent() == {}, "one package alone would look like the whole machine"
    zone(tmp_path, "intel-rapl:1", "package-1", 600_000)
    assert meter.spent() == {}, "what it was before is not known"
    zone(tmp_path, "intel-rapl:1", "package-1", 700_000)
    assert meter.spent() == {"joules_processors": pytest.approx(0.1)}
    assert EnergyMeter(tmp_path / "none").spent() == {}


NVML = """
#include <stdint.h>
static unsigned long long told[2];
int nvmlInitWithFlags(unsigned int flags) { return 0; }
int nvmlDeviceGetCount_v2(unsigned int *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int nth, void **gpu) { *gpu = told + nth; return 0; }
int nvmlDeviceGetTotalEnergyConsumption(void *gpu, unsigned long long *mj) {
    *mj = *(unsigned long long *)gpu += gpu == told ? 1500 : 250;
    return %d;
}
"""
READ = "from mpifl.common.machine import EnergyMeter; print(EnergyMeter().spent().get('joules_gpus'))"


@pytest.mark.parametrize(("answer", "told"), [(0, "1.75"), (3, "None")])
def test_gpus_count_by_nvml(tmp_path, answer, told):
    """A library of two GPUs stands in for the driver; 3 is NVML's word for what a GPU does not support."""
    pytest.importorskip("pynvml")
    if (compiler := shutil.which("cc")) is None:
        pytest.skip("no C compiler")
    (tmp_path / "nvml.c").write_text(NVML % answer)
    library = tmp_path / "libnvidia-ml.so.1"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", library, tmp_path / "nvml.c"], check=True, timeout=180
    )
    here = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", READ], env=here, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.strip() == told
