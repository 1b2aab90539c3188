"""The versions of the published documentation site."""

from __future__ import annotations

from tools.docs.assemble_versions import describe_versions, find_newest_patches


def test_only_the_newest_patch_of_a_minor_version_is_published():
    tags = ["v0.9.0", "v0.10.0", "v0.9.10", "v0.9.2", "v1.0.0rc1", "v2", "other", "v0.10.0.post1"]
    assert find_newest_patches(tags) == ["v0.10.0", "v0.9.10"]


def test_the_newest_release_is_the_latest():
    assert describe_versions(["v0.10.0", "v0.9.10"]) == [
        {"version": "0.10", "title": "0.10.0", "aliases": ["latest"]},
        {"version": "0.9", "title": "0.9.10", "aliases": []},
        {"version": "dev", "title": "dev (not released)", "aliases": []},
    ]
    assert [entry["version"] for entry in describe_versions([])] == ["dev"]
