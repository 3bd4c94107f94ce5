# SPDX-License-Identifier: Apache-2.0
"""Ids and unit names."""

from __future__ import annotations

import re

from sandboxd.core.names import UnitNames, is_id, is_name, new_id


def test_ids_have_no_dash_and_differ() -> None:
    ids = {new_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(re.fullmatch(r"[a-z2-7]{12}", made) and is_id(made) for made in ids)


def test_a_name_is_never_of_an_ids_form() -> None:
    assert is_name("build-7")
    assert not is_name("abcdefghijkl")
    for wrong in ("", "7up", "-a", "Aa", "a" * 64, "a_b", "a\n", "é"):
        assert not is_name(wrong), wrong


def test_unit_names_nest_in_buckets() -> None:
    names = UnitNames.of_instance("iiiiiiiiiiii", is_service=True)
    slice_name = names.sandbox_slice("abcdefghijkl")
    assert re.fullmatch(r"sandboxd-[0-9a-f]{2}-abcdefghijkl\.slice", slice_name)
    assert slice_name.startswith(names.bucket_slice("abcdefghijkl").removesuffix(".slice") + "-")
    assert names.parent_slice == "sandboxd.slice"
    scope = names.execution_scope("abcdefghijkl", "mnopqrstuvwx")
    assert scope == "sandboxd-abcdefghijkl-mnopqrstuvwx.scope"


def test_another_instance_has_a_slice_of_its_own() -> None:
    service = UnitNames.of_instance("iiiiiiiiiiii", is_service=True)
    private = UnitNames.of_instance("iiiiiiiiiiii", is_service=False)
    assert private.parent_slice == "sandboxd_iiiiiiiiiiii.slice"
    for pattern in service.patterns():
        expression = re.compile(pattern.replace(".", r"\.").replace("*", ".*"))
        assert expression.fullmatch(service.sandbox_slice("abcdefghijkl")) or ".scope" in pattern
        assert not expression.fullmatch(private.sandbox_slice("abcdefghijkl"))
        assert not expression.fullmatch(private.execution_scope("abcdefghijkl", "mnopqrstuvwx"))
