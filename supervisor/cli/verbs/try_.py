"""``openperouter try``: a changed configuration that reverts by itself unless it is confirmed.

What counts is on disk (``actors.static_config.trial``), and the daemon alone enforces the deadline: this program may
die at any moment. Confirming and reverting work from any session, and without a running daemon too.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from supervisor.operations import exit_codes
from supervisor.operations.control_client import NoAnswerError, NotRunningError, ask

from ..options import CONTROL_SOCKET, CommandError, StoreFile, add_settings
from ..terminal import Painter, wants_colour

if TYPE_CHECKING:
    from actors.static_config.trial import Journal, Trial
    from config.settings import Settings
    from supervisor.operations.trial.candidate import Candidate

DEFAULT_SECONDS: Final = 120.0
#: A trial that is forgotten for longer than a day is none.
LONGEST_SECONDS: Final = 86400.0
#: How long to wait for the outcome of keeping or reverting, seconds.
SETTLE_SECONDS: Final = 60.0

DESCRIPTION: Final = """\
Put a changed router configuration in force for a limited time. Unless it is confirmed it is reverted when the time is
over: by the daemon, so also when this terminal's connection was cut off by the very change, when the daemon was killed
meanwhile, and when the machine was restarted (then at once). Give either a directory, which stands for the whole router
configuration (a file that it lacks goes), or single files, which are added to those in force or replace those of the
same name. Files with errors are refused and nothing changes. ENTER keeps the configuration: its files are written to
their place, and those that it replaces are saved below before-trial in the state directory. Ctrl-C, a hangup and the
end of the input revert at once. Password files and the node configuration cannot be tried. Exits with 0 when the
configuration was kept, with 1 when it was reverted, with 78 when it has errors.
"""


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "try", help="try a configuration: it is reverted unless you confirm it", description=DESCRIPTION
    )
    add_settings(parser)
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
        help="do not ask, but return once the outcome is known (0: all of it is in force, 1: not all); the trial goes "
        "on until --confirm, --revert or the end of its time",
    )
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--confirm", action="store_true", help="keep what is on trial")
    action.add_argument("--revert", action="store_true", help="end the trial now")
    action.add_argument("--status", action="store_true", help="show the trial; exits with 1 when there is none")
    parser.add_argument(
        "paths", nargs="*", type=Path, action=StoreFile, metavar="PATH", help="a directory, or openpe_*.yaml files"
    )
    parser.set_defaults(function=run)


def run(arguments: argparse.Namespace) -> int:
    """Start, confirm, revert or show a trial."""
    from actors.static_config.trial import Journal, TrialError
    from supervisor.operations.node_configuration import load_usable_settings

    act = _confirm if arguments.confirm else _revert if arguments.revert else _show if arguments.status else None
    if bool(arguments.paths) == (act is not None):
        what = "give a directory or files to try, or one of --confirm, --revert and --status"
        raise CommandError(what, exit_codes.USAGE)
    settings = load_usable_settings(arguments.settings)
    journal = Journal(settings.state_dir)
    try:
        return act(settings, journal) if act else _start(arguments, settings, journal)
    except TrialError as error:
        raise CommandError(str(error), exit_codes.DEGRADED) from None


def _start(arguments: argparse.Namespace, settings: Settings, journal: Journal) -> int:
    from supervisor.operations.trial.candidate import find_problems, gather

    if not 0 < arguments.timeout <= LONGEST_SECONDS:
        raise CommandError(f"--timeout must be above 0 and at most {LONGEST_SECONDS:g} s", exit_codes.USAGE)
    candidate = gather(settings, arguments.paths)
    if _refused(find_problems(candidate, settings, arguments.settings)):
        return exit_codes.CONFIG
    if not (candidate.changed or candidate.removed):
        print("nothing to try: these files are in their place already")
        return exit_codes.OK
    _require_daemon(settings)
    trial = _trial(candidate, settings, arguments.timeout)
    print(f"{candidate}\non trial until {_clock(trial.ends_at)}", flush=True)
    return _detached(settings, journal, trial) if arguments.detach else _attended(settings, journal, trial)


def _refused(problems: tuple[Any, ...]) -> bool:
    """Print all problems; return whether they forbid a trial."""
    from config.problems import errors

    painter = Painter(colour=wants_colour())
    wrong = errors(problems)
    for problem in problems:
        print(painter.paint(str(problem), "bad" if problem in wrong else "warn"))
    if wrong:
        print(painter.paint("not tried: the configuration has errors; nothing has changed", "bold"))
    return bool(wrong)


def _require_daemon(settings: Settings) -> None:
    try:
        next(ask(settings.run_dir / CONTROL_SOCKET, {"verb": "status"}), None)
    except NotRunningError as error:
        raise CommandError(f"{error}: nothing could be tried", exit_codes.NOT_RUNNING) from None
    except NoAnswerError as error:
        raise CommandError(str(error), exit_codes.NO_ANSWER) from None


def _trial(candidate: Candidate, settings: Settings, seconds: float) -> Trial:
    from actors.static_config.trial import Trial, now
    from supervisor.operations.trial.candidate import texts_in_place

    moment = now()
    return Trial(
        texts=texts_in_place(candidate, settings),
        changed=candidate.changed,
        removed=candidate.removed,
        modes={name: candidate.files[name].mode for name in candidate.changed},
        boot_id=moment.boot_id,
        deadline=moment.seconds + seconds,
        ends_at=time.time() + seconds,
    )


def _detached(settings: Settings, journal: Journal, trial: Trial) -> int:
    from .try_prompt import follow_reload, show_outcome

    journal.start(trial)
    outcome = follow_reload(settings.run_dir, journal.left(trial))
    show_outcome("on trial, in force and verified", "on trial, but not all of it is in force", outcome)
    print("keep it with: openperouter try --confirm")
    return exit_codes.OK if outcome.ok else exit_codes.DEGRADED


def _attended(settings: Settings, journal: Journal, trial: Trial) -> int:
    """Run a trial whose end is decided at this terminal, and in which leaving it is a decision."""
    from .try_prompt import (
        Answer,
        DepartedError,
        ask_to_keep,
        departures_raised,
        follow_reload,
        show_outcome,
        silence,
        undisturbed,
    )

    why = "the command that started it failed"
    journal.start(trial)
    try:
        with departures_raised():
            outcome = follow_reload(settings.run_dir, journal.left(trial))
            show_outcome("on trial, in force and verified", "on trial, but not all of it is in force", outcome)
            answer = ask_to_keep(journal, trial)
            why = "the input of the command that started it ended" if answer is Answer.NO else ""
            if answer is Answer.KEEP:
                return _keep(settings, journal, trial)
    except KeyboardInterrupt:
        why = "it was interrupted"
    except (DepartedError, OSError) as error:
        why = f"the terminal that it was started from is gone ({error})"
        silence()
    finally:
        with undisturbed():
            journal.revert(trial, why or journal.why_over(trial))
    return _tell_end(settings, journal, trial)


def _tell_end(settings: Settings, journal: Journal, trial: Trial) -> int:
    """Say how a trial ended that was not kept here, and how the router is then."""
    from .try_prompt import show_outcome

    ending = journal.last()
    kept = ending is not None and ending.id == trial.id and ending.confirmed
    print(journal.how_ended(trial.id), flush=True)
    show_outcome("the files are in force", "the files are in force, as far as possible", _settled(settings))
    return exit_codes.OK if kept else exit_codes.DEGRADED


def _confirm(settings: Settings, journal: Journal) -> int:
    return _keep(settings, journal, _load(journal))


def _keep(settings: Settings, journal: Journal, trial: Trial) -> int:
    """Make a trial permanent. The daemon goes on with its texts until the last file is in its place."""
    from supervisor.operations.trial.try_commit import put_in_place

    from .try_prompt import show_outcome, undisturbed

    accepted = journal.accept(trial)
    try:
        with undisturbed():
            saved = put_in_place(accepted, settings.configs_dir, settings.state_dir)
            journal.finish(accepted)
    except OSError as error:
        raise CommandError(
            f"confirmed, so it stays in force, but it cannot be written to {settings.configs_dir}: {error}; "
            "openperouter try --confirm tries again, --revert gives it up",
            exit_codes.UNAVAILABLE,
        ) from None
    print(f"kept: written to {settings.configs_dir}; the files as they were before are in {saved}", flush=True)
    show_outcome("in force and verified", "kept, but not all of it is in force", _settled(settings))
    return exit_codes.OK


def _revert(settings: Settings, journal: Journal) -> int:
    """End a trial, also one that was confirmed but could not be written."""
    from actors.static_config.trial import TrialDamagedError
    from supervisor.operations.trial.try_commit import take_back

    from .try_prompt import show_outcome

    try:
        trial = _load(journal)
    except TrialDamagedError:
        journal.discard_damaged()
    else:
        if trial.accepted:
            take_back(trial, settings.configs_dir, settings.state_dir)
        if not journal.revert(trial, "it was ended with openperouter try --revert"):
            raise CommandError(journal.how_ended(trial.id), exit_codes.DEGRADED)
    print("reverted", flush=True)
    show_outcome("the files are in force", "the files are in force, as far as possible", _settled(settings))
    return exit_codes.OK


def _settled(settings: Settings) -> Any:
    from .try_prompt import follow_reload

    return follow_reload(settings.run_dir, SETTLE_SECONDS)


def _load(journal: Journal) -> Trial:
    from actors.static_config.trial import TrialError

    trial = journal.load()
    if trial is None:
        ending = journal.last()
        raise TrialError("no trial is in force" + (f"; {journal.how_ended(ending.id)}" if ending else ""))
    return trial


def _show(settings: Settings, journal: Journal) -> int:
    trial = journal.load()
    if trial is None:
        ending = journal.last()
        told = f"; {journal.how_ended(ending.id)} ({_clock(ending.at)})" if ending else ""
        print(f"no trial is in force{told}")
        return exit_codes.DEGRADED
    left = "" if trial.accepted else f", {journal.left(trial):.0f} s left"
    print(f"{trial}{left}")
    for verb, names in (("writes", trial.changed), ("removes", trial.removed)):
        for name in names:
            print(f"  {verb} {settings.configs_dir / name}")
    sys.stdout.flush()
    return exit_codes.OK


def _clock(moment: float) -> str:
    return time.strftime("%H:%M:%S %Z", time.localtime(moment))
