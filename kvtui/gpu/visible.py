"""Which GPUs an engine will use: what the operator named, what the environment leaves, else all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kvtui.core.errors import InputError
from kvtui.gpu.samples import DeviceInfo

_NVIDIA = ("CUDA_VISIBLE_DEVICES",)
_AMD = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
_SHORTEST_UUID = len("GPU-") + 1


def chosen(
    devices: Sequence[DeviceInfo], gpus: Sequence[int] | None, environment: Mapping[str, str]
) -> tuple[DeviceInfo, ...]:
    """The devices among `devices` (all of one vendor, at least one) that an engine uses.

    `gpus` are the driver's indices, None leaves it to the variables that limit what CUDA or HIP sees; where these
    leave none the result is empty. Of a GPU cut into MIG instances CUDA uses one instance, the first unless the
    variable names another. Raises InputError for an index that is not there.
    """
    if gpus is not None:
        by_index = {d.index: d for d in reversed(devices)}
        for index in gpus:
            if index not in by_index:
                there = ", ".join(map(str, sorted(by_index)))
                raise InputError(f"there is no GPU {index}", hint=f"there is {there}")
        return tuple(by_index[index] for index in dict.fromkeys(gpus))
    variables = _NVIDIA if devices[0].kind == "nvml" else _AMD
    limit = next((environment[name] for name in variables if name in environment), None)
    if limit is not None:
        return _limited(devices, limit, by_speed=_by_speed(devices, environment))
    return tuple(devices) if all(d.mig is None for d in devices) else tuple(devices[:1])


def _limited(devices: Sequence[DeviceInfo], limit: str, by_speed: bool) -> tuple[DeviceInfo, ...]:
    """What a list of numbers and UUIDs leaves. Like CUDA, it ends at the first entry that names nothing."""
    if limit.strip().startswith(("GPU-", "MIG-")) and not any(d.uuid for d in devices):
        return (
            replace(devices[0], note="which GPU the environment names cannot be told, this is the first"),
        )
    out: list[DeviceInfo] = []
    for entry in (part.strip() for part in limit.split(",")):
        device = _named(devices, entry)
        if device is None or device in out:
            break
        if by_speed and entry.isdecimal():
            device = replace(
                device,
                note="CUDA counts GPUs by speed and the driver by slot: is this the GPU that number "
                f"{entry} means? CUDA_DEVICE_ORDER=PCI_BUS_ID makes both the same",
            )
        out.append(device)
    return tuple(out)


def _named(devices: Sequence[DeviceInfo], entry: str) -> DeviceInfo | None:
    if entry.isdecimal():
        return next((d for d in devices if d.index == int(entry)), None)
    if len(entry) < _SHORTEST_UUID:
        return None
    return next((d for d in devices if d.uuid.startswith(entry)), None)


def _by_speed(devices: Sequence[DeviceInfo], environment: Mapping[str, str]) -> bool:
    differ = len({d.name for d in devices}) > 1
    return devices[0].kind == "nvml" and differ and environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"
