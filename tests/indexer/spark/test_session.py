"""The machine and the settings of a session."""

import pytest

from gnomon.commands.spark import parse_conf
from gnomon.indexer.spark.session import is_this_machine
from gnomon.shadow import UsageError


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2]", "local[2,3]"])
def test_local_masters_run_tasks_in_this_process(master: str) -> None:
    assert is_this_machine(master)


@pytest.mark.parametrize("master", ["local-cluster[2,1,1024]", "spark://localhost:7077", "yarn", "k8s://https://local"])
def test_all_others_are_clusters(master: str) -> None:
    assert not is_this_machine(master)


def test_settings_are_split_at_the_first_equals_sign() -> None:
    assert parse_conf(["spark.a=b=c", "spark.d="]) == {"spark.a": "b=c", "spark.d": ""}


@pytest.mark.parametrize("pair", ["spark.a", "a=b", "=b", ""])
def test_what_is_no_setting_of_sparks_is_refused(pair: str) -> None:
    with pytest.raises(UsageError, match=r"--conf: expected spark\.name=value"):
        parse_conf([pair])
