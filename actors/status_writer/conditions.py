"""Keeps the conditions on custom resources true, together with all other nodes: carries out what a Suppressor asks for.

An object that cannot be written does not stop the others. Who says that an object fails also makes an Event of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from actors.lib.kube.client import KubeClient
from actors.lib.kube.cluster_size import Crowd
from actors.lib.kube.errors import ApiError, ConflictError, ForbiddenError, InvalidError, NotFoundError, ServerError
from config.api import API_VERSION, PLURALS, ApiObject
from config.problems import Kind

from .condition_codec import MANAGER, Claim, confirmed, manifest
from .error_log import Telling
from .feedback_suppression import LONGEST_CHECK_SECONDS, Intent, Subject, Suppressor, Task
from .node_status import path_of
from .rate_limit import Pause, TokenBucket
from .writer import Scene

#: Writes at once, and then one in N/100 seconds, of one of N nodes, but one in so many seconds at least. The hundredth
#: follows the first after 0.8 s on one node (80 times 0.01 s), 8 s on ten, 80 s on a hundred, 160 s on two hundred and
#: more. There hardly any node has so much to say: of an object that all know, two or three speak (:mod:`.waiting`), so
#: a hundred objects are some 300 attempts of all nodes together.
BURST: Final = 20
LONGEST_PERIOD: Final = 2.0
#: How long an object is left alone that the server refuses to change, seconds.
REFUSED_SECONDS: Final = 600.0

#: Hears of claims that are news for an admin: a first failure, and that an object is in force again.
Witness = Callable[[ApiObject, Claim], None]
#: How a subject of the log begins that is one object.
_ONE: Final = "conditions of "
_CHECKING: Final = "checking what other nodes claim"


class ConditionsDuty:
    """``wall`` is the clock in Unix seconds, ``chance`` returns a random number in [0, 1)."""

    name = "conditions"

    def __init__(
        self,
        suppressor: Suppressor,
        crowd: Crowd,
        *,
        wall: Callable[[], float],
        chance: Callable[[], float],
        telling: Telling,
        witness: Witness,
    ) -> None:
        self._suppressor, self._crowd = suppressor, crowd
        self._wall, self._chance, self._telling, self._witness = wall, chance, telling, witness
        self._bucket = TokenBucket(BURST, crowd.pace(LONGEST_PERIOD))
        self._pauses: dict[Kind, Pause] = {}
        self._namespace = ""
        self.writes = 0

    def see(self, scene: Scene, now: float) -> None:
        """Hear what is claimed and compare it with this node's verdicts."""
        self._namespace = scene.namespace
        self._bucket.pace(self._crowd.pace(LONGEST_PERIOD), now)
        subjects = tuple(_subjects(scene))
        self._suppressor.look(subjects, now)
        self._telling.forget(_ONE, {_subject(subject.object) for subject in subjects})

    def due(self, now: float) -> float:
        """Return when something is to be said or looked into."""
        due = self._suppressor.due()
        return max(due, self._bucket.due(now)) if due < math.inf else math.inf

    async def act(self, client: KubeClient, now: float) -> None:
        """Say or check one thing."""
        task = self._suppressor.next(now)
        if task is None or now < self._bucket.due(now):
            return
        pause = self._pauses.setdefault(task.subject.object.kind, Pause(self._chance))
        if now < pause.until:
            self._suppressor.again(task, now, pause.until - now)
            return
        self._bucket.take(now)
        try:
            claim = await self._checked(client, task, now) if task.intent is Intent.CHECK else task.claim
            if claim is not None:
                await self._write(client, task, claim, now)
        except (ConflictError, NotFoundError):
            # Somebody was quicker, or the object is gone; the watch will show which.
            self._suppressor.again(task, now)
        except (InvalidError, ServerError) as error:
            # Of this object: its spec is invalid by now, or a webhook of somebody's does not answer.
            self._telling.failing(_subject(task.subject.object), error)
            self._suppressor.again(task, now, REFUSED_SECONDS)
        except ForbiddenError as error:
            self._refused(task, error, now)

    async def _write(self, client: KubeClient, task: Task, claim: Claim, now: float) -> None:
        one = task.subject.object
        answer = await client.apply(f"{_path(one)}/status", manifest(one, claim, self._wall()), manager=MANAGER)
        self.writes += 1
        if not (answer.get("status") or {}).get("conditions"):
            self._refused(task, ApiError("its CRD has no conditions: it is another version's"), now)
            return
        self._suppressor.done(task, claim, now)
        self._pauses[one.kind].over()
        self._telling.working(f"conditions: {one.kind}")
        self._telling.working(_subject(one))
        took_back = task.intent in (Intent.CLEAR, Intent.CHECK) and not claim.failing
        if task.intent is Intent.SAY_FAILING or took_back:
            self._witness(one, claim)

    async def _checked(self, client: KubeClient, task: Task, now: float) -> Claim | None:
        """Return the claim of another node as it should be now: confirmed, or taken back in its stead."""
        try:
            status = await client.get(path_of(self._namespace, task.claim.node))
        except NotFoundError:
            status = {}
        except ForbiddenError as error:
            self._telling.failing(_CHECKING, error)
            self._suppressor.again(task, now, LONGEST_CHECK_SECONDS)
            return None
        self._telling.working(_CHECKING)
        if _stands_for(status.get("status") or {}, task.subject.object):
            return confirmed(task.claim, self._wall())
        return Claim(failing=False, node=self._suppressor.node)

    def _refused(self, task: Task, error: ApiError, now: float) -> None:
        """Leave all objects of the kind alone for a while."""
        one = task.subject.object
        pause = self._pauses[one.kind]
        pause.refused(now)
        self._suppressor.again(task, now, pause.until - now)
        self._telling.failing(f"conditions: {one.kind}", error)
        if task.intent is Intent.SAY_FAILING:
            # An Event is all that is left to say it with; its name is the same for all nodes.
            self._witness(one, task.claim)


def _subjects(scene: Scene) -> Iterator[Subject]:
    for objects, own in ((scene.basis.api.objects, False), (scene.basis.api.mirrored, True)):
        for one in objects:
            if verdict := scene.verdicts.get(one.id):
                yield Subject(one, verdict, own)


def _stands_for(status: Mapping[str, Any], one: ApiObject) -> bool:
    """Whether a node says in its own status that an object is not in force there."""

    def means(entry: Mapping[str, Any]) -> bool:
        place = (entry.get("kind"), entry.get("name"), entry.get("namespace") or one.namespace)
        return place == (one.kind.value, one.name, one.namespace)

    failed = any(means(entry) for entry in status.get("failedResources") or ())
    return failed or any(means(entry) and not entry.get("inForce") for entry in status.get("resources") or ())


def _subject(one: ApiObject) -> str:
    return f"{_ONE}{one.kind} {one.namespace}/{one.name}"


def _path(one: ApiObject) -> str:
    return f"/apis/{API_VERSION}/namespaces/{one.namespace}/{PLURALS[one.kind]}/{one.name}"
