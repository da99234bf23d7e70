"""Fixtures: `fake` is a CUDA driver without a GPU, afresh for every test; `built` is its library."""

import gc

import pytest

from fake_cuda import build, load_afresh


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    return build(tmp_path_factory.mktemp("cuda"))


@pytest.fixture
def fake(built, tmp_path, monkeypatch):
    found = load_afresh(built, tmp_path, monkeypatch)
    yield found
    found.fake_release()
    found.fake_heal()
    gc.collect()
