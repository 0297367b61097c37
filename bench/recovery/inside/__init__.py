"""The part of a recovery layer that runs inside the ranks; it may use torch and NVRx, the runner never imports it."""

from __future__ import annotations

from importlib import import_module

from bench import recovery
from bench.recovery.inside.base import Inside, Post


def create_inside(layer_name: str, post: Post) -> Inside:
    """The layer's part in this rank. Raises BadInput for an unknown layer."""
    module, attribute = recovery.create(layer_name).inside.split(":")
    inside: Inside = getattr(import_module(module), attribute)(post)
    return inside
