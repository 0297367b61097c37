"""Where NVRx 0.4.1 and 0.7.0 differ in what recovery uses of them. Imports neither; versions are read from metadata.

0.4.1 is the newest one with a wheel for Python 3.11 or glibc < 2.39; 0.7.0 needs CPython 3.12 and glibc 2.39.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

PACKAGE = "nvidia-resiliency-ext"


def installed() -> str | None:
    """The version of NVRx that this interpreter would import; None: there is none."""
    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        return None


def modern(number: str | None) -> bool:
    """From 0.7 on; what lies between the two versions is taken for the older one."""
    return number is not None and tuple(int(part) for part in number.split(".")[:2]) >= (0, 7)


def agent_env(number: str | None) -> dict[str, str]:
    """0.7 refuses a second agent on a machine, which a rehearsal of several nodes is, unless it is told so."""
    return {"NVRX_ENABLE_MULTI_LAUNCHERS_PER_NODE": "1"} if modern(number) else {}


def no_heartbeats(number: str | None) -> list[str]:
    """Options for watching sections alone. 0.4.1 expects heartbeats unless told; from 0.7 on it does not."""
    if modern(number):
        return []
    return ["--ft-initial-rank-heartbeat-timeout=inf", "--ft-rank-heartbeat-timeout=inf"]


def nested_policy(number: str | None) -> list[str]:
    """When an agent around inprocess.Wrapper restarts its workers. 0.4.1: only with too few healthy ones, so that it
    does not restart what the Wrapper is mending; 0.7 knows no other policy than its default."""
    return [] if modern(number) else ["--ft-restart-policy=min-healthy"]


def agent_anchors(number: str | None) -> tuple[str, ...]:
    """Lines of ft_launcher's log that say it has noticed a failure."""
    common = (r"failed \(exitcode: ", r"restart(ing)? worker group")
    if modern(number):
        return (r"Event: failure_detected", *common)
    return (r"FT timeout elapsed", *common)


def mend_wrapper(wrapper: Any, device: str) -> None:
    """0.7 adds checks of GPU, NVLink and NIC to those given, and without that hardware they end every rank."""
    if device != "cuda" and hasattr(wrapper, "restart_health_check"):
        wrapper.restart_health_check = wrapper.health_check
