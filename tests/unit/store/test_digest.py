"""The digest chain notices every change, and nothing else depends on it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reshape_controller.store.digest import GENESIS, body_of, chain_digest, record_of, seal
from reshape_sidecar.codec import CodecError
from tests.support.store_values import record, records


def test_a_record_survives_being_kept() -> None:
    kept = record(1)
    assert record_of(body_of(kept), kept.digest) == kept


def test_a_digest_depends_on_the_record_and_on_the_one_before_but_not_on_itself() -> None:
    first, second = records(2)
    assert chain_digest(first.digest, second) == second.digest
    assert chain_digest(first.digest, replace(second, digest="anything")) == second.digest
    assert chain_digest(GENESIS, second) != second.digest
    assert chain_digest(first.digest, replace(second, at_s=9.0)) != second.digest
    assert seal(first.digest, replace(second, digest="")) == second


def test_a_record_of_another_form_is_not_guessed_at() -> None:
    with pytest.raises(CodecError):
        record_of(b'{"type":"LogRecord","seq":1,"new_field":2}', "d")
