"""Calls that run exactly once: the claim before, and the answer that is kept after.

A call has an id that its caller keeps when it tries again. Before it runs, the server notes in its
store that it has begun; before the answer leaves, that is in the store, too. So a call that comes
again is answered from the store, also by another process with the same store, and after a crash.
An id belongs to what was called under it first, with its arguments: another use of it is an error.

A crash while the operation ran leaves a call that had begun and has no answer. Nobody can know
what it did: it runs once more if it is declared idempotent (it can ask `current_call().id` what it
did under that name), and otherwise its caller is told that it may have run.
"""

from __future__ import annotations

import msgspec

from infobus.errors import BadFrame, CallMayHaveRun, StoreError, UsageError
from infobus.protocols.frames import invocation as wire
from infobus.protocols.invocation.offers import use_of
from infobus.services.failures import write_error
from infobus.services.ports import NodePort

_answers: msgspec.msgpack.Decoder[wire.Reply | wire.Failed] = msgspec.msgpack.Decoder(
    wire.Reply | wire.Failed
)
written = msgspec.msgpack.encode


def claim(
    node: NodePort, call: wire.Call, subject: str, *, is_idempotent: bool
) -> wire.Reply | wire.Failed | wire.Refused | None:
    """The answer to a call that must run once; None if it has to be run, which is noted."""
    store = node.reply_store()
    if store is None:
        return _refused(node, call, "it cannot keep replies")
    try:
        owner, answer = store.claim(call.once, node.name, use_of(subject, call))
        if answer:
            return _answers.decode(answer)
        if not owner:
            return None
        if owner == node.name or owner in node.alive():
            return _refused(node, call, f"it runs at {owner}")
        if not is_idempotent:
            return _interrupted(node, call, subject, owner)
        if store.take_over(call.once, owner, node.name):
            return None
        return _refused(node, call, "another server has taken it over")
    except UsageError as error:
        return wire.Failed(node.name, call.number, write_error(error, with_traceback=False))
    except (StoreError, msgspec.MsgspecError, BadFrame) as error:
        return _refused(node, call, f"its store fails: {error}")


def _refused(node: NodePort, call: wire.Call, why: str) -> wire.Refused:
    return wire.Refused(node.name, call.number, wire.BUSY, why[:2000])


def _interrupted(node: NodePort, call: wire.Call, subject: str, owner: str) -> wire.Failed:
    error = CallMayHaveRun(
        f"{call.operation} of {subject!r} was interrupted by the end of {owner}: it may have run, "
        "in part or wholly; declare it idempotent if it may run again",
        subject=subject,
        operation=call.operation,
        node=owner,
        call_id=call.once,
    )
    return wire.Failed(node.name, call.number, write_error(error, with_traceback=False))


def acknowledge(node: NodePort, once: str) -> None:
    """The caller has the answer: it need not be kept, only that the call has run."""
    store = node.reply_store()
    if store is not None:
        error = UsageError(
            f"call {once} has run, and its caller has acknowledged the reply; give a call an id of "
            "your own if you may ask for its reply again"
        )
        instead = wire.Failed(node.name, 1, write_error(error, with_traceback=False))
        store.forget([once], written(instead))
