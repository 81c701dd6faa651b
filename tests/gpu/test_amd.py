"""AMD GPUs by a tree of files like the kernel's."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from kvtui.core.errors import InputError
from kvtui.gpu import amd, source
from kvtui.gpu.amd import Roots, open_amd
from kvtui.gpu.fdinfo import DrmClients
from kvtui.gpu.host import Family
from kvtui.gpu.nvml import GpuLost, NvmlMissing
from kvtui.gpu.samples import Vitals
from kvtui.gpu.source import HostSource, open_source, reopen_source

GIB = 1 << 30
MIB = 1 << 20
ME = os.getpid()
SLOT = "0000:03:00.0"


class Tree:
    """A system's files under a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.roots = Roots(root / "sys", root / "proc", root / "rocm", root / "amdgpu.ids")

    def write(self, path: str, text: str | int) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    def card(
        self, n: int, slot: str, vram: int = 24 * GIB, gtt: int = 32 * GIB, vendor: str = "0x1002"
    ) -> str:
        base = f"sys/class/drm/card{n}/device"
        for name, value in {
            "vendor": vendor,
            "device": "0x744c",
            "revision": "0xc8",
            "uevent": f"DRIVER=amdgpu\nPCI_ID=1002:744C\nPCI_SLOT_NAME={slot}",
            "mem_info_vram_total": vram,
            "mem_info_vram_used": GIB,
            "mem_info_gtt_total": gtt,
            "mem_info_gtt_used": 100 * MIB,
            "gpu_busy_percent": 83,
        }.items():
            self.write(f"{base}/{name}", value)
        return base

    def client(self, fd: int, client: int, slot: str, pid: int = ME, **fields: str) -> None:
        lines = [f"pos:\t0\ndrm-driver:\tamdgpu\ndrm-client-id:\t{client}\ndrm-pdev:\t{slot}"]
        lines += [f"drm-{name.replace('_', '-')}:\t{value}" for name, value in fields.items()]
        self.write(f"proc/{pid}/fdinfo/{fd}", "\n".join(lines))


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """An empty system without an NVIDIA driver, in the place of this one."""
    for name in ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)

    def missing() -> None:
        raise NvmlMissing("no NVIDIA driver is installed")

    made = Tree(tmp_path)
    monkeypatch.setattr(source, "open_nvml", missing)
    monkeypatch.setattr(amd, "ROOTS", made.roots)
    return made


def test_a_card_and_its_memory(tree: Tree) -> None:
    base = tree.card(1, SLOT)
    tree.write(f"{base}/unique_id", "b1c2d3")
    tree.write("sys/class/drm/card1-DP-1/status", "connected")
    tree.write("sys/class/drm/renderD128/x", "")
    tree.write("sys/module/amdgpu/version", "6.10.5")
    tree.write("rocm/.info/version", "6.4.0-47")
    tree.write("amdgpu.ids", "# list\n744C,\tC4,\tother\n744C,\tC8,\tAMD Radeon RX 7900 XTX")
    tree.client(9, 77, SLOT, memory_vram=f"{5 * MIB} KiB", memory_gtt="300 MiB")
    opened = open_source()
    device = opened.device
    assert (device.kind, device.index, device.name) == ("amd", 0, "AMD Radeon RX 7900 XTX")
    assert (device.total_bytes, device.driver, device.rocm) == (24 * GIB, "6.10.5", "6.4.0-47")
    assert (device.display_attached, device.uuid, device.cuda) == (True, "GPU-b1c2d3", None)
    reading = opened.read(ME)
    assert (reading.used_bytes, reading.device_process_bytes, reading.gpu_util) == (GIB, 5 * GIB, 83)
    assert (reading.gtt_process_bytes, reading.gtt_used_bytes) == (300 * MIB, 100 * MIB)
    assert reading.host_bytes
    assert opened.read(None).device_process_bytes is None
    assert reopen_source(device).device == device


def test_what_is_not_told_is_missing(tree: Tree) -> None:
    base = tree.card(0, SLOT)
    tree.write(f"{base}/product_name", "Instinct MI300X \x1b[31m")
    tree.write(f"{base}/gpu_busy_percent", "garbage")
    tree.write(f"{base}/mem_info_gtt_used", "99999999999999999999999")
    opened = open_source()
    assert opened.device.name == "Instinct MI300X"
    assert opened.device.driver is not None
    assert opened.device.driver.startswith("amdgpu of kernel ")
    assert (opened.device.rocm, opened.device.display_attached, opened.device.uuid) == (None, None, "")
    reading = opened.read(ME)
    assert (reading.gpu_util, reading.gtt_used_bytes, reading.device_process_bytes) == (None, None, None)
    assert opened.vitals() == Vitals()


def test_a_client_counts_once_and_only_on_its_card(tree: Tree) -> None:
    tree.card(0, SLOT)
    tree.card(1, "0000:0a:00.0")
    tree.client(3, 7, SLOT, resident_vram="2 GiB", memory_vram="9 GiB", resident_gtt="1 MiB")
    tree.client(4, 7, SLOT, resident_vram="2 GiB", resident_gtt="1 MiB")
    tree.client(5, 8, SLOT, resident_vram="512 KiB")
    tree.client(6, 7, "0000:0A:00.0", resident_vram="1 GiB")
    tree.client(7, 9, SLOT)
    tree.write(f"proc/{ME}/fdinfo/8", "pos:\t0\nflags:\t02")
    reading = open_source().read(ME)
    assert [r.device_process_bytes for r in reading.devices] == [2 * GIB + 512 * 1024, GIB]
    assert reading.device_process_bytes == 3 * GIB + 512 * 1024
    assert reading.gtt_process_bytes == MIB


def test_open_files_are_looked_up_again_after_two_seconds(tmp_path: Path) -> None:
    tree, now = Tree(tmp_path), [0.0]
    clients = DrmClients(tree.roots.proc, Family(lambda: now[0]), lambda: now[0])
    assert clients.read(ME) == {}
    tree.client(3, 7, SLOT, resident_vram="1 KiB")
    now[0] = 0.6
    assert clients.read(ME) == {SLOT: (1024, 0)}, "found soon where none was known"
    tree.client(4, 8, SLOT, resident_vram="1 KiB")
    tree.client(3, 7, SLOT, resident_vram="3 KiB")
    assert clients.read(ME) == {SLOT: (3072, 0)}, "its memory is read each time"
    now[0] = 2.7
    assert clients.read(ME) == {SLOT: (4096, 0)}


def test_a_driver_that_does_not_count_compute_memory(tree: Tree) -> None:
    tree.card(0, SLOT)
    tree.client(3, 7, SLOT, resident_vram="0 KiB", resident_gtt="2 MiB")
    reading = open_source().read(ME)
    assert (reading.device_process_bytes, reading.gtt_process_bytes) == (None, None)


def test_power_and_clock(tree: Tree) -> None:
    base = tree.card(0, SLOT)
    tree.write(f"{base}/hwmon/hwmon3/power1_average", 301_000_000)
    tree.write(f"{base}/hwmon/hwmon3/freq1_input", 2_400_000_000)
    assert open_source().vitals() == Vitals(power_w=301.0, clock_mhz=2400)


def test_a_card_that_is_gone_and_comes_back(tree: Tree) -> None:
    base = tree.card(0, SLOT)
    opened = open_source()
    used = tree.root / base / "mem_info_vram_used"
    used.unlink()
    with pytest.raises(GpuLost, match="gone"):
        opened.read(ME)
    with pytest.raises(GpuLost):
        opened.recover()
    used.write_text("5\n")
    opened.recover()
    assert opened.read(ME).used_bytes == 5


def test_which_of_several(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.card(0, "0000:0a:00.0", vram=16 * GIB)
    tree.card(1, SLOT)
    both = open_source().device
    assert (both.name, both.total_bytes) == ("2 x AMD GPU 744C", 40 * GIB)
    assert [d.total_bytes // GIB for d in both.each] == [24, 16], "in the order of their slots"
    assert open_source(None, [1]).device.total_bytes == 16 * GIB
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "1")
    assert open_source().device.index == 1
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "-1")
    device = open_source().device
    assert (device.kind, device.note.count("AMD GPU 744C (the environment hides it)")) == ("host", 2)
    with pytest.raises(InputError, match="no GPU 4"):
        open_source(None, [4])


def test_a_gpu_that_shares_host_memory_only_when_asked(tree: Tree) -> None:
    base = tree.card(0, SLOT, vram=512 * MIB, gtt=15 * GIB)
    device = open_source().device
    assert device.kind == "host"
    assert "AMD GPU 744C (it shares host memory; --gpu 0 takes it) is not measured" in device.note
    opened = open_source(None, [0])
    assert opened.device.total_bytes == 15 * GIB + 512 * MIB
    tree.write(f"{base}/mem_info_gtt_used", 2 * GIB)
    reading = opened.read(ME)
    assert (reading.used_bytes, reading.gtt_used_bytes) == (3 * GIB, None), (
        "no spill where all is host memory"
    )


def test_other_vendors_are_named_as_not_measured(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.card(0, SLOT, vendor="0x8086")
    device = open_source().device
    assert (device.kind, "the Intel GPU 0x744c is not measured" in device.note) == ("host", True)
    with pytest.raises(InputError, match="GPU 0 cannot be used"):
        open_source(None, [0])
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    assert "the GPU of this Mac is not measured" in open_source().device.note


def test_a_recorded_card_that_is_not_there(tree: Tree) -> None:
    tree.card(0, SLOT)
    device = open_source().device
    with pytest.raises(InputError, match="no GPU 3"):
        reopen_source(replace(device, index=3))
    with pytest.raises(InputError, match="no AMD GPU"):
        open_amd([0], Roots(tree.root / "nothing"))
    assert isinstance(reopen_source(HostSource("why").device), HostSource)
