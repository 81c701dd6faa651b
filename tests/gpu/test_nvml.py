"""NVML through the real nvidia-ml-py and a stand-in library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kvtui.core.errors import InputError
from kvtui.gpu import source as source_module
from kvtui.gpu.nvml import GpuLost, NvmlMissing, open_nvml
from kvtui.gpu.samples import DeviceInfo
from kvtui.gpu.source import NvmlSource, Reading, open_source
from tests.gpu.conftest import GIB, Scenario, one_gpu

ME = os.getpid()
Load = Callable[[str], None]


@pytest.mark.parametrize("variant", ["new", "old"])
def test_a_device_and_its_memory(load_nvml: Load, scenario: Scenario, variant: str) -> None:
    scenario(one_gpu(3 * GIB, f"process 0 {ME} {2 * GIB}", "process 0 77 5", f"graphics 0 {ME} 9"))
    load_nvml(variant)
    source = open_source()
    assert isinstance(source, NvmlSource)
    assert source.device == DeviceInfo(
        kind="nvml",
        index=0,
        name="NVIDIA RTX 4090",
        total_bytes=24 * GIB,
        driver="590.48.01",
        cuda="13.2",
        compute_capability="9.0",
        display_attached=True,
    )
    reading = source.read(ME)
    assert reading.used_bytes == 3 * GIB + GIB // 2, "the driver's reserve is not free"
    assert (reading.device_process_bytes, reading.gpu_util) == (2 * GIB, 37)
    assert reading.host_bytes
    assert source.read(None) == Reading(3 * GIB + GIB // 2, None, None, 37)
    source.close()


def test_what_a_driver_does_not_tell_is_missing_not_zero(load_nvml: Load, scenario: Scenario) -> None:
    scenario(f"count 1\nmemory 0 {GIB} 0 5\nprocess 0 {ME} -1\nerror nvmlSystemGetDriverVersion 999\n"
             "error nvmlSystemGetCudaDriverVersion_v2 3\nerror nvmlDeviceGetCudaComputeCapability 4\n")  # fmt: skip
    load_nvml("new")
    source = open_source()
    assert source.device == DeviceInfo("nvml", 0, "GPU 0", GIB)
    reading = source.read(ME)
    assert (reading.used_bytes, reading.device_process_bytes, reading.gpu_util) == (5, None, None)


@pytest.mark.parametrize("call", ["Compute", "Graphics"])
def test_processes_that_may_not_be_listed(load_nvml: Load, scenario: Scenario, call: str) -> None:
    scenario(
        one_gpu(
            GIB,
            f"process 0 {ME} 11",
            f"graphics 0 {ME} 12",
            f"error nvmlDeviceGet{call}RunningProcesses_v3 4",
        )
    )
    load_nvml("new")
    expected = 12 if call == "Compute" else 11
    assert open_source().read(ME).device_process_bytes == expected


def test_a_process_that_is_not_listed_is_missing(load_nvml: Load, scenario: Scenario) -> None:
    scenario(one_gpu(GIB, "process 0 77 5"))
    load_nvml("new")
    assert open_source().read(ME).device_process_bytes is None


def test_memory_that_cannot_be_read_for_a_moment(load_nvml: Load, scenario: Scenario) -> None:
    scenario(one_gpu(GIB))
    load_nvml("new")
    source = open_source()
    scenario(one_gpu(GIB, "error nvmlDeviceGetMemoryInfo_v2 999", "error nvmlDeviceGetMemoryInfo 999"))
    assert source.read(None).used_bytes is None
    scenario(one_gpu(2 * GIB))
    assert source.read(None).used_bytes == 2 * GIB + GIB // 2


@pytest.mark.parametrize("code", [15, 16, 9, 1])
def test_a_gpu_that_is_lost(load_nvml: Load, scenario: Scenario, code: int) -> None:
    scenario(one_gpu(GIB))
    load_nvml("new")
    source = open_source()
    scenario(one_gpu(GIB, f"error nvmlDeviceGetMemoryInfo_v2 {code}"))
    with pytest.raises(GpuLost) as caught:
        source.read(ME)
    assert str(caught.value).isprintable()


def two_gpus(*lines: str) -> str:
    return one_gpu(GIB, "count 2", f"memory 1 {8 * GIB} 0 5", "name 1 NVIDIA A2", *lines).replace(
        "count 1\n", ""
    )


def test_one_of_several(load_nvml: Load, scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    scenario(two_gpus(f"process 1 {ME} 5"))
    load_nvml("new")
    first = open_source().device
    assert (first.index, first.note) == (0, "one of 2 GPUs; the memory of the others is not measured")
    assert open_source(None, 1).device.name == "NVIDIA A2"
    assert open_source(ME).device.index == 1
    with pytest.raises(InputError, match="no GPU 2") as caught:
        open_source(None, 2)
    assert caught.value.hint == "there is 0, 1"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    assert open_source().device.index == 1
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-8f")
    assert open_source().device.index == 0


def test_a_device_without_memory_figures_is_not_usable(load_nvml: Load, scenario: Scenario) -> None:
    scenario(two_gpus().replace("memory 0 ", "memory 7 "))
    load_nvml("new")
    assert [device.index for device in open_nvml().devices] == [1]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("count 0\n", "lists no usable GPU"),
        ("count 1\n", "lists no usable GPU"),
        ("count 1\nerror nvmlInitWithFlags 9\n", "Driver Not Loaded"),
        ("count 1\nerror nvmlInitWithFlags 18\n", "version mismatch"),
        ("count 1\nerror nvmlDeviceGetCount_v2 15\n", "lost"),
        ("count 1\nerror nvmlInitWithFlags 5000\n", "fake error"),
    ],
)
def test_without_a_usable_gpu_host_memory_stands_in_and_says_so(
    load_nvml: Load, scenario: Scenario, text: str, why: str
) -> None:
    scenario(text)
    load_nvml("new")
    device = open_source().device
    assert device.kind == "host"
    assert why in device.note
    assert "stands in for VRAM" in device.note
    assert device.note.isprintable()
    with pytest.raises(InputError, match="GPU 0 cannot be used"):
        open_source(None, 0)


def test_a_driver_that_does_not_answer_counts_as_missing(load_nvml: Load, scenario: Scenario) -> None:
    scenario("count 1\nhang nvmlInitWithFlags\n")
    load_nvml("new")
    began = time.monotonic()
    with pytest.raises(NvmlMissing, match="did not answer"):
        open_nvml(limit_s=0.3)
    assert time.monotonic() - began < 2


def test_without_nvidia_ml_py_host_memory_stands_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    device = source_module.open_source().device
    assert (device.kind, "nvidia-ml-py" in device.note) == ("host", True)


def test_the_library_is_found_as_the_loader_finds_it(
    fake_nvml: Callable[[str], Path], scenario: Scenario
) -> None:
    scenario(one_gpu(GIB))
    code = (
        "import json, sys\n"
        "from kvtui.gpu.source import open_source\n"
        "assert 'pynvml' not in sys.modules\n"
        "source = open_source()\n"
        "print(json.dumps([source.device.name, source.read(None).used_bytes]))\n"
    )
    env = os.environ | {"LD_LIBRARY_PATH": str(fake_nvml("new"))}
    answer = subprocess.run((sys.executable, "-c", code), env=env, capture_output=True, text=True, check=True)
    assert json.loads(answer.stdout) == ["NVIDIA RTX 4090", GIB + GIB // 2]
