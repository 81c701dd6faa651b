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
from kvtui.gpu.nvml_source import NvmlSource
from kvtui.gpu.samples import DeviceInfo, Vitals
from kvtui.gpu.source import Reading, open_source, reopen_source
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
        reserved_bytes=GIB // 2 if variant == "new" else None,
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
    assert source.device == DeviceInfo("nvml", 0, "GPU 0", GIB, reserved_bytes=0)
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


def test_an_engine_uses_every_gpu_that_is_left_to_it(
    load_nvml: Load, scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    scenario(two_gpus(f"process 1 {ME} 5", "uuid 0 GPU-8f01", "uuid 1 GPU-8f02"))
    load_nvml("new")
    both = open_source().device
    assert (both.name, both.total_bytes) == ("NVIDIA RTX 4090 + NVIDIA A2", 32 * GIB)
    assert [d.total_bytes for d in both.each] == [24 * GIB, 8 * GIB]
    assert both.note.startswith("GPU 0 + GPU 1 together: each must hold its share")
    first = open_source(None, [0]).device
    assert (first.index, first.note) == (0, "the memory of 1 other GPU is not measured")
    assert open_source(None, [1]).device.name == "NVIDIA A2"
    assert open_source(None, [1, 0, 1]).device.name == "NVIDIA A2 + NVIDIA RTX 4090"
    assert open_source(ME).device.index == 1, "the one it runs on"
    with pytest.raises(InputError, match="no GPU 2") as caught:
        open_source(None, [2])
    assert caught.value.hint == "there is 0, 1"
    assert [d.index for d in reopen_source(both).device.each] == [0, 1]


@pytest.mark.parametrize(
    ("value", "indices"),
    [("1,0", [1, 0]), ("0", [0]), ("GPU-8f02", [1]), ("GPU-8f02,GPU-8f01", [1, 0]), ("0,7,1", [0])],
)
def test_the_environment_says_which_gpus_an_engine_uses(
    load_nvml: Load, scenario: Scenario, monkeypatch: pytest.MonkeyPatch, value: str, indices: list[int]
) -> None:
    scenario(two_gpus("uuid 0 GPU-8f01", "uuid 1 GPU-8f02"))
    load_nvml("new")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    device = open_source().device
    assert [d.index for d in device.each] == indices
    assert ("CUDA counts GPUs by speed" in device.note) == value[0].isdigit(), (
        "which of two kinds is number 1?"
    )


@pytest.mark.parametrize("value", ["", "-1", "NoDevFiles", "GPU-77"])
def test_an_environment_that_hides_every_gpu(
    load_nvml: Load, scenario: Scenario, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    scenario(two_gpus("uuid 0 GPU-8f01", "uuid 1 GPU-8f02"))
    load_nvml("new")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    device = open_source().device
    assert (device.kind, "hides every GPU" in device.note) == ("host", True)


def test_memory_of_several_gpus_as_a_whole_and_by_gpu(load_nvml: Load, scenario: Scenario) -> None:
    scenario(two_gpus(f"process 0 {ME} {7 * GIB}"))
    load_nvml("new")
    source = open_source(None, [0, 1])
    reading = source.read(ME)
    assert reading.used_bytes == GIB + GIB // 2 + 5
    assert reading.device_process_bytes == 7 * GIB, "not listed on the other: nothing held there"
    assert [r.device_process_bytes for r in reading.devices] == [7 * GIB, None]
    scenario(two_gpus().replace("memory 1 ", "memory 9 "))
    assert source.read(ME).used_bytes is None, "a sum without one of its parts is no sum"


def test_what_a_process_started_counts_as_its_own(load_nvml: Load, scenario: Scenario) -> None:
    with subprocess.Popen((sys.executable, "-c", "input()"), stdin=subprocess.PIPE) as child:
        scenario(one_gpu(GIB, f"process 0 {child.pid} 40", f"process 0 {ME} 2", "process 0 1 500"))
        load_nvml("new")
        source = open_source()
        assert source.read(ME).device_process_bytes == 42
        assert source.read(child.pid).device_process_bytes == 40
        scenario(one_gpu(GIB, f"process 0 {child.pid} -1", f"process 0 {ME} 2"))
        assert source.read(ME).device_process_bytes is None, "a part that is not told"


@pytest.mark.parametrize("variant", ["new", "old"])
def test_vitals(load_nvml: Load, scenario: Scenario, variant: str) -> None:
    throttle = 0x1 | 0x2 | 0x4 | 0x40 | 0x100
    scenario(one_gpu(GIB, "power 0 287500", "clock 0 2520", f"throttle 0 {throttle}", "pcie 0 1500 20"))
    load_nvml(variant)
    source = open_source()
    vitals = source.vitals()
    assert vitals == Vitals(287.5, 2520, 1_500_000, 20_000, ("power cap", "thermal (hardware)"))
    scenario(one_gpu(GIB, f"throttle 0 {0x1 | 0x2 | 0x100}"))
    held = Vitals(pcie_rx=1_500_000, pcie_tx=20_000, throttle=())
    assert source.vitals() == held, (
        "idleness and the operator's own clocks hold nothing back; traffic is the last"
    )
    scenario(one_gpu(GIB))
    assert source.vitals() == Vitals()


def test_vitals_of_several_gpus_come_one_by_one(load_nvml: Load, scenario: Scenario) -> None:
    scenario(two_gpus("clock 0 2000", "clock 1 900", "power 0 200000", "power 1 50000", "throttle 1 4"))
    load_nvml("new")
    source = open_source(None, [0, 1])
    assert source.vitals() == Vitals(200.0, 2000)
    assert source.vitals() == Vitals(250.0, 900, throttle=("power cap",))


def mig(*lines: str) -> str:
    """One card, cut into two instances."""
    instances = (f"memory {n} {10 * GIB} 0 {n} " for n in (100, 101))
    return one_gpu(GIB, "mig 0 2", "uuid 100 MIG-a0", "uuid 101 MIG-b1", "name 101 H100 MIG 1g.10gb", "ecc 0 1",
                   *instances, *lines)  # fmt: skip


def test_a_gpu_that_is_cut_into_instances(
    load_nvml: Load, scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    scenario(mig(f"process 101 {ME} 7", "clock 0 1980", "pcie 0 9 9"))
    load_nvml("new")
    assert [(d.index, d.mig, d.uuid) for d in open_nvml().devices] == [(0, 0, "MIG-a0"), (0, 1, "MIG-b1")]
    assert open_source().device.uuid == "MIG-a0", "CUDA takes one instance, the first"
    assert open_source(ME).device.uuid == "MIG-b1"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-b1")
    source = open_source()
    device = source.device
    assert (device.name, device.total_bytes, device.mig, device.ecc) == (
        "H100 MIG 1g.10gb",
        10 * GIB,
        1,
        True,
    )
    assert device.compute_capability == "9.0", "that of the whole card"
    assert device.note == "the memory of 1 other GPU or instance is not measured"
    reading = source.read(ME)
    assert (reading.used_bytes, reading.device_process_bytes) == (101, 7)
    assert source.vitals() == Vitals(clock_mhz=1980), "traffic may be the other instance's"
    assert reopen_source(device).device.uuid == "MIG-b1"


def test_a_driver_that_was_reloaded(load_nvml: Load, scenario: Scenario) -> None:
    scenario(two_gpus("uuid 0 GPU-a", "uuid 1 GPU-b"))
    load_nvml("new")
    source = open_source(None, [1])
    scenario(two_gpus("generation 1"))
    for _ in range(2):
        with pytest.raises(GpuLost):
            source.read(ME)
    scenario(two_gpus("generation 1", "error nvmlInitWithFlags 9"))
    with pytest.raises(GpuLost):
        source.recover()
    swapped = two_gpus("generation 1", "uuid 0 GPU-b", "uuid 1 GPU-a", f"memory 0 {24 * GIB} 0 33")
    scenario(swapped)
    source.recover()
    assert source.read(ME).used_bytes == 33, "the same card has another number now"


def test_a_recorded_gpu_is_found_again_by_its_uuid(load_nvml: Load, scenario: Scenario) -> None:
    scenario(two_gpus("uuid 0 GPU-a", "uuid 1 GPU-b"))
    load_nvml("new")
    before = open_source(None, [1]).device
    scenario(two_gpus("uuid 0 GPU-b", "uuid 1 GPU-c"))
    assert reopen_source(before).device.index == 0
    scenario(two_gpus("uuid 0 GPU-d", "uuid 1 GPU-c"))
    with pytest.raises(InputError, match=r"GPU 1 .*is not there"):
        reopen_source(before)


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
        open_source(None, [0])


def test_a_driver_that_does_not_answer_counts_as_missing(load_nvml: Load, scenario: Scenario) -> None:
    scenario("count 1\nhang nvmlInitWithFlags\n")
    load_nvml("new")
    began = time.monotonic()
    with pytest.raises(NvmlMissing, match="did not answer"):
        open_nvml(limit_s=0.3)
    assert time.monotonic() - began < 10


def test_a_driver_that_stops_answering_counts_as_missing_too(
    load_nvml: Load, scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario(one_gpu(GIB, "hang nvmlDeviceGetComputeRunningProcesses_v3"))
    load_nvml("new")
    monkeypatch.setattr(source_module, "_ASK_LIMIT_S", 0.2)
    began = time.monotonic()
    assert "did not answer" in open_source(ME).device.note
    assert time.monotonic() - began < 10


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
