"""`tollway processes`: who holds budget money, and closing one that is lost."""

from __future__ import annotations

from uuid import UUID

from cyclopts import App

from gateway import processes
from gateway.cli.database import fail, instant, run, table
from gateway.money.pricing import usd

app = App(name="processes", help="Gateway processes and the budget money they hold.")


@app.command(name="list")
def list_(*, closed: bool = False) -> None:
    """Gateway processes, their heartbeat and what they hold.

    Parameters
    ----------
    closed
        Those too that have ended.
    """
    rows = [
        (
            one.id,
            one.host,
            "lost" if one.lost else one.state,
            instant(one.started_at_us),
            round(one.silent_s),
            usd(one.held),
            one.journal_dir,
        )
        for one in run(lambda engine, _: processes.list_processes(engine, closed))
    ]
    print(table(("process", "host", "state", "started", "silent_s", "held_usd", "journal"), rows))


@app.command
def close(process: str, *, charge: bool = False, release: bool = False) -> None:
    """Close a lost process, whose journal will not come back.

    Parameters
    ----------
    process
        Its id.
    charge
        Book what it holds as spent: right when its requests may have reached a vendor.
    release
        Give it back: right when you know that nothing was spent.
    """
    if charge == release:
        fail("say one of --charge and --release")
    try:
        wanted = UUID(process)
    except ValueError:
        fail(f"'{process[:80]}' is no process id")
    was = run(lambda engine, _: processes.close_lost(engine, wanted, charge=charge))
    print(f"process {wanted} is closed; {usd(was.held)} USD are {'booked as spent' if charge else 'given back'}")
