"""The file names of the scripts tell what alembic itself would."""

from __future__ import annotations

import subprocess
import sys

import migrations
from gateway.db.revisions import scripts
from gateway.db.tables import HEAD


def test_the_newest_script_is_the_head_that_alembic_and_the_tables_name() -> None:
    assert scripts()[-1] == migrations.head() == HEAD


def test_every_script_is_found_in_order() -> None:
    from alembic.script import ScriptDirectory

    walked = [script.revision for script in ScriptDirectory.from_config(migrations.configuration()).walk_revisions()]
    assert list(scripts()) == walked[::-1]


def test_it_loads_neither_alembic_nor_sql() -> None:
    code = "import sys, gateway.db.revisions as r; r.scripts(); print(sorted({'alembic', 'sqlalchemy', 'migrations'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
