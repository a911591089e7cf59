"""``openperouter try``: a changed configuration that reverts by itself unless it is confirmed.

The trial is on disk (``actors.static_config.trial``) and the daemon alone enforces the deadline: this program may die
at any moment. Confirming and reverting work from any session, and without a running daemon too.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from supervisor.operations import exit_codes
from supervisor.operations.control_client import NoAnswerError, NotRunningError
from supervisor.operations.exit_codes import CommandError
from supervisor.operations.paths import load_usable_settings

from ...options import StoreFile, add_output, add_quiet, add_verb, print_document
from ...terminal import choose_quiet, is_quiet, moment, say

if TYPE_CHECKING:
    from actors.static_config.trial import Journal, Trial
    from config.settings import Settings

    from .try_prompt import Report

DEFAULT_SECONDS: Final = 120.0
#: A trial is not meant to be left alone for longer than a day.
LONGEST_SECONDS: Final = 86400.0
#: How long to wait for the outcome of keeping or reverting, seconds.
SETTLE_SECONDS: Final = 60.0

DESCRIPTION: Final = (
    "Apply a changed router configuration for a limited time. Unless it is confirmed, the daemon reverts it when the "
    "time has expired: also if the change cut off this terminal's connection or the daemon was killed in the meantime, "
    "and at once if the machine was restarted. Give either a directory, which replaces the whole router "
    "configuration (files missing from it are removed), or single files, which are added to those in force or replace "
    "those of the same name. Files with errors are refused and nothing changes. ENTER keeps the configuration: its "
    "files are written to the configuration directory, and those that they replace are saved below before-trial in "
    "the state directory. Ctrl-C, a hangup and the end of the input revert at once. Password files and the node "
    "configuration cannot be tried. Exits with 0 when the configuration was kept, with 1 when it was reverted, with 78 "
    "when it has errors."
)


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    summary = "try a configuration: it is reverted unless you confirm it"
    parser = add_verb(verbs, "try", run, summary=summary, description=DESCRIPTION)
    parser.add_argument(
        "--timeout",
        type=float,
        default=DEFAULT_SECONDS,
        metavar="SECONDS",
        help=f"revert after this time, counted from the start (default: {DEFAULT_SECONDS:g}, at most a day)",
    )
    parser.add_argument(
        "--detach",
        action="store_true",
        help="do not ask; return once the outcome is known (0: all of it is in force, 1: not all). The trial continues "
        "until --confirm, --revert or the end of its time",
    )
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--confirm", action="store_true", help="keep what is on trial")
    action.add_argument("--revert", action="store_true", help="end the trial now")
    action.add_argument(
        "--edit",
        action="store_true",
        help="open $EDITOR on a copy of the router files, or of those with the names PATH, then check, plan and try it",
    )
    action.add_argument("--status", action="store_true", help="show the trial; exits with 1 when there is none")
    about = "json and yaml, where nothing is asked: one document (schemaVersion 1)"
    add_quiet(add_output(parser, about), "print only the question and errors")
    parser.add_argument(
        "paths", nargs="*", type=Path, action=StoreFile, metavar="PATH", help="a directory, or openpe_*.yaml files"
    )


def run(arguments: argparse.Namespace) -> int:
    """Start, confirm, revert or show a trial."""
    from actors.static_config.trial import Journal, TrialError

    from .try_prompt import Report

    act = _confirm if arguments.confirm else _revert if arguments.revert else _show if arguments.status else None
    if not arguments.edit and bool(arguments.paths) == (act is not None):
        what = "give a directory or files to try, or one of --edit, --confirm, --revert and --status"
        raise CommandError(what, exit_codes.USAGE)
    silent = arguments.output != "text"
    if silent and (arguments.edit or not (act or arguments.detach)):
        what = f"--output {arguments.output} needs one of --detach, --confirm, --revert and --status"
        raise CommandError(what, exit_codes.USAGE)
    choose_quiet(quiet=silent or arguments.quiet)
    settings = load_usable_settings(arguments.settings)
    journal, report = Journal(settings.state_dir), Report(settings.run_dir, silent)
    trying = partial(
        try_files, settings, arguments.settings, seconds=arguments.timeout, detach=arguments.detach, report=report
    )
    try:
        if arguments.edit:
            from .try_edit import edit_and_try

            return edit_and_try(settings, arguments.settings, arguments.paths, trying, detach=arguments.detach)
        code = act(settings, journal, report) if act else trying(arguments.paths)
        if silent:
            print_document(_state(settings, journal) | ({} if arguments.status else report.data), arguments.output)
    except TrialError as error:
        raise CommandError(str(error), exit_codes.DEGRADED) from None
    return code


def try_files(
    settings: Settings,
    settings_file: Path,
    paths: Sequence[Path],
    *,
    seconds: float = DEFAULT_SECONDS,
    detach: bool = False,
    report: Report | None = None,
) -> int:
    """Try a directory or files; return the exit code. Raises :class:`CommandError`, ``TrialError``."""
    from actors.static_config.trial import Journal
    from supervisor.operations.candidate import gather, read_candidate

    from .try_prompt import Report

    journal, report = Journal(settings.state_dir), report or Report(settings.run_dir)
    if not 0 < seconds <= LONGEST_SECONDS:
        raise CommandError(f"--timeout must be above 0 and at most {LONGEST_SECONDS:g} s", exit_codes.USAGE)
    candidate = gather(settings, paths)
    if report.problems(read_candidate(candidate, settings, settings_file).problems):
        say("not tried: the configuration has errors; nothing has changed", "bold")
        return exit_codes.CONFIG
    if not (candidate.changed or candidate.removed):
        say("nothing to try: these files are in force already")
        return exit_codes.OK
    _require_nothing_held_back(settings)
    trial = candidate.trial(seconds)
    say(str(candidate))
    say(f"on trial until {_clock(trial.ends_at)}")
    return _detached(journal, trial, report) if detach else _attended(settings, journal, trial, report)


def _require_nothing_held_back(settings: Settings) -> None:
    """Refuse a trial while files wait for a reload: it would contain them, and confirming it would take them in."""
    from actors.static_config.trial import TrialError
    from actors.static_config.waiting import held_back
    from config.status import StatusFormatError
    from supervisor.operations.inspection.current_status import statuses

    try:
        status = next(statuses(settings.run_dir, "status"), None)
    except NotRunningError as error:
        raise NotRunningError(f"{error}: nothing can be tried") from None
    except StatusFormatError as error:
        raise NoAnswerError(str(error)) from None
    if status and (waiting := held_back(status.problems)):
        raise TrialError(f"not tried: {waiting}")


def _detached(journal: Journal, trial: Trial, report: Report) -> int:
    journal.start(trial)
    ok = _report_start(journal, trial, report)
    say("keep it with: openperouter try --confirm")
    return exit_codes.OK if ok else exit_codes.DEGRADED


def _attended(settings: Settings, journal: Journal, trial: Trial, report: Report) -> int:
    """Run a trial that is decided at this terminal: leaving it, in whatever way, reverts it."""
    from .try_prompt import HangupError, ask_to_keep, hangups_raised, silence, uninterrupted

    why = "the command that started it failed"
    journal.start(trial)
    try:
        with hangups_raised():
            _report_start(journal, trial, report)
            if ask_to_keep(journal, trial):
                return _keep(settings, journal, trial, report)
            why = journal.why_over(trial)
    except KeyboardInterrupt:
        why = "it was interrupted"
    except EOFError:
        why = "the input of the command that started it ended"
    except (HangupError, OSError) as error:
        why = f"the terminal from which it was started was closed ({error})"
        silence()
    finally:
        with uninterrupted():
            journal.revert(trial, why)
    ending = journal.last()
    kept = ending is not None and ending.id == trial.id and ending.confirmed
    if not (kept and is_quiet()):
        print(journal.how_ended(trial.id), flush=True)
    _report_files(journal, report)
    return exit_codes.OK if kept else exit_codes.DEGRADED


def _confirm(settings: Settings, journal: Journal, report: Report) -> int:
    return _keep(settings, journal, _load(journal), report)


def _keep(settings: Settings, journal: Journal, trial: Trial, report: Report) -> int:
    """Make a trial permanent. The daemon uses its texts until the last file is in its place."""
    from .try_prompt import uninterrupted

    accepted = journal.accept(trial)
    try:
        with uninterrupted():
            saved = journal.complete(accepted)
    except OSError as error:
        raise CommandError(
            f"confirmed, so it stays in force, but it cannot be written to {settings.configs_dir}: {error}; "
            "openperouter try --confirm tries again, --revert discards it",
            exit_codes.UNAVAILABLE,
        ) from None
    say(f"kept: written to {settings.configs_dir}; the files as they were before are in {saved}")
    report.reload(SETTLE_SECONDS, "in force and verified", "kept, but not all of it is in force")
    return exit_codes.OK


def _revert(_settings: Settings, journal: Journal, report: Report) -> int:
    """End a trial, also one that was confirmed but could not be written."""
    from actors.static_config.trial import TrialDamagedError

    try:
        trial = _load(journal)
    except TrialDamagedError:
        journal.discard_damaged()
    else:
        if not journal.revert(trial, "it was ended with openperouter try --revert"):
            raise CommandError(journal.how_ended(trial.id), exit_codes.DEGRADED)
    say("reverted")
    _report_files(journal, report)
    return exit_codes.OK


def _load(journal: Journal) -> Trial:
    from actors.static_config.trial import TrialError

    trial = journal.load()
    if trial is None:
        ending = journal.last()
        raise TrialError("no trial is in force" + (f"; {journal.how_ended(ending.id)}" if ending else ""))
    return trial


def _show(settings: Settings, journal: Journal, _report: Report) -> int:
    trial = journal.load()
    if trial is None:
        ending = journal.last()
        how = f"; {journal.how_ended(ending.id)} ({_clock(ending.at)})" if ending else ""
        say(f"no trial is in force{how}")
        return exit_codes.DEGRADED
    left = "" if trial.accepted else f", {journal.left(trial):.0f} s left"
    say(f"{trial}{left}")
    for verb, names in (("writes", trial.changed), ("removes", trial.removed)):
        for name in names:
            say(f"  {verb} {settings.configs_dir / name}")
    return exit_codes.OK


def _state(settings: Settings, journal: Journal) -> dict[str, Any]:
    """Return what is on trial, and how the last trial ended."""
    trial, ending = journal.load(), journal.last()
    return {
        "schemaVersion": 1,
        "trial": trial
        and {
            "id": trial.id,
            "kept": trial.accepted,
            "secondsLeft": None if trial.accepted else round(journal.left(trial)),
            "writes": [str(settings.configs_dir / name) for name in trial.changed],
            "removes": [str(settings.configs_dir / name) for name in trial.removed],
        },
        "last": ending
        and {"id": ending.id, "kept": ending.confirmed, "reason": ending.reason, "endedAt": moment(ending.at)},
    }


def _report_start(journal: Journal, trial: Trial, report: Report) -> bool:
    good, bad = "on trial, in force and verified", "on trial, but not all of it is in force"
    return report.reload(journal.left(trial), good, bad)


def _report_files(journal: Journal, report: Report) -> None:
    report.ended(journal, SETTLE_SECONDS, "the files are in force", "the files are in force, as far as possible")


def _clock(moment: float) -> str:
    return time.strftime("%H:%M:%S %Z", time.localtime(moment))
