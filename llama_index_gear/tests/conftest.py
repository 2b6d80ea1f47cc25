"""Failures of the shipped contract are as readable as those of the tests here."""

import pytest

pytest.register_assert_rewrite("llama_index_gear.store_contract")
