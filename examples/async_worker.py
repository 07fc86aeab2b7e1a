"""An asyncio program that handles events by a coroutine and leaves well when it is told to stop.

Stop it by SIGTERM or Ctrl-C: it takes nothing new, handles what waits, and ends.
"""

import asyncio
import signal
from dataclasses import dataclass

import infobus


@dataclass
class Job:
    number: int


async def main() -> None:
    stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    async with infobus.aio.connect() as bus:

        async def work(event: infobus.Event) -> None:
            await asyncio.sleep(0.1)
            print("done", event.data.number, flush=True)

        await bus.subscribe("jobs.>", work, type=Job)
        print("ready", flush=True)
        await stop.wait()
        await bus.drain(20)
        print("drained", flush=True)


asyncio.run(main())
