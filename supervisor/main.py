"""The daemon from start to end.

It loads its settings, takes the lock of the single instance, handles signals, runs the tree of children until that
ends, and reports why it ended: in the log, to systemd and as the process's exit code.
"""

from __future__ import annotations

import faulthandler
import sys
from functools import partial
from pathlib import Path

import trio

from config.problems import Problem, errors
from config.settings import Settings, load_settings

from .logs import message_ids
from .logs.logger import configure, get_logger
from .process.instance_lock import single_instance
from .process.sd_notify import Notifier
from .process.signals import handle_signals
from .runtime.faults import EXIT_CONFIG, EXIT_OK, Fault
from .runtime.tree import Ending
from .version import VERSION
from .wiring import Daemon

log = get_logger("supervisor")

#: How long a thread may keep others from running Python, seconds (Python's default is ten times as long). The threads
#: that read the kernel make thousands of short system calls, and after each they wait so long for a busy event loop.
SWITCH_SECONDS = 0.0005


def run_daemon(settings_file: Path, log_level: str | None = None) -> int:
    """Run until stopped; return the process's exit code (``docs/architecture.md`` has the table).

    ``log_level`` overrides that of the settings.
    """
    # A watchdog kill (SIGABRT) then leaves every thread's stack in the journal.
    faulthandler.enable(sys.stderr)
    sys.setswitchinterval(SWITCH_SECONDS)
    settings, problems = load_settings(settings_file, settings_file.parent / "conf.d")
    configure(log_level or settings.log_level)
    notifier = Notifier()
    if not usable(problems):
        return finish(notifier, Ending(EXIT_CONFIG, "the settings are invalid"))
    try:
        with single_instance(settings.run_dir):
            return finish(notifier, trio.run(live, settings, settings_file, notifier))
    except Fault as fault:
        return finish(notifier, Ending(fault.exit_code, str(fault)))


def usable(problems: tuple[Problem, ...]) -> bool:
    """Log the settings' problems; return whether the daemon can run with them."""
    for problem in problems:
        (log.error if errors([problem]) else log.warning)(str(problem), message_id=message_ids.SETTINGS_PROBLEM)
    return not errors(problems)


async def live(settings: Settings, settings_file: Path, notifier: Notifier) -> Ending:
    """Run the tree until it ends; ``settings`` were read from ``settings_file``."""
    daemon = Daemon(settings, settings_file=settings_file, notifier=notifier)

    def stop() -> None:
        notifier.stopping()
        daemon.supervisor.stop()

    log.info("starting", version=VERSION, configs=settings.configs_dir, netns=settings.netns)
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(handle_signals, stop=stop, reload=daemon.channels.reload))
        ending = await daemon.supervisor.run()
        nursery.cancel_scope.cancel()
    return ending


def finish(notifier: Notifier, ending: Ending) -> int:
    """Report why the process ends, to the log and to systemd; return its exit code."""
    notifier.stopping()
    if ending.exit_code == EXIT_OK:
        log.info("stopped; forwarding continues", message_id=message_ids.STOPPED, reason=ending.reason)
    else:
        log.error("ending", message_id=message_ids.ENDING, reason=ending.reason, exit_code=ending.exit_code)
        notifier.status(ending.reason)
        notifier.failing(ending.exit_code)
    return ending.exit_code
