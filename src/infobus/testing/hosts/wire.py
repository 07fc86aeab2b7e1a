"""A slow cable between two ports of the switch: every frame takes some time.

Run in the switch's network as `wire.py DELAY_S PORT ADDRESS PORT ADDRESS`, with the hardware
addresses of the hosts behind the ports; the switch itself must not carry frames between the two.
Frames are copied with what the kernel knows about them, so that unfinished checksums and large
segments stay what they are. The kernel's own emulator, netem, is missing on many machines.

It is run by its path and uses the standard library only, because it must start quickly.
"""

from __future__ import annotations

import select
import socket
import sys
import time
from collections import deque

EVERY_PROTOCOL = 0x0300  # in network order
SOL_PACKET, VNET_HEADER, VNET_HEADER_BYTES = 263, 15, 10
OUTGOING = 4
FRAME_BYTES_MAX = 1 << 17
FRAME_COUNT_MAX = 50_000
"""On the cable at a time; further ones are lost, as by a full router."""
BUFFER_BYTES = 64 << 20
BURST = 64


def end_of(port: str) -> socket.socket:
    """What comes from a host, and the way to it."""
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, EVERY_PROTOCOL)
    end.setsockopt(SOL_PACKET, VNET_HEADER, 1)
    end.setsockopt(socket.SOL_SOCKET, 33, BUFFER_BYTES)  # SO_RCVBUFFORCE
    end.bind((port, 0))
    end.setblocking(False)
    return end


def host_at(address: str) -> bytes:
    """A hardware address as it stands in frames."""
    return bytes.fromhex(address.replace(":", ""))


def carry(one: socket.socket, other: socket.socket, to: dict[int, bytes], delay_s: float) -> None:
    """Move frames from each end to the other, for ever. `to` has the host behind each end."""
    across = {one: other, other: one}
    under_way: deque[tuple[float, socket.socket, bytes]] = deque()
    while True:
        wait_s = max(0.0, under_way[0][0] - time.monotonic()) if under_way else None
        readable, _, _ = select.select([one, other], [], [], wait_s)
        for end in readable:
            target = across[end]
            for _ in range(BURST):
                try:
                    frame, (_, _, kind, *_) = end.recvfrom(FRAME_BYTES_MAX)
                except BlockingIOError:
                    break
                except OSError:  # the port is down
                    break
                address = frame[VNET_HEADER_BYTES : VNET_HEADER_BYTES + 6]
                is_for_it = address == to[target.fileno()] or address[0] & 1
                if kind != OUTGOING and is_for_it and len(under_way) < FRAME_COUNT_MAX:
                    under_way.append((time.monotonic() + delay_s, target, frame))
        while under_way and under_way[0][0] <= time.monotonic():
            _, end, frame = under_way.popleft()
            try:
                end.send(frame)
            except OSError:  # the port is down, or its queue is full: the frame is lost
                continue


def main() -> None:
    """Lay the cable, say so, and carry until killed."""
    delay_s = float(sys.argv[1])
    one, other = end_of(sys.argv[2]), end_of(sys.argv[4])
    behind = {one.fileno(): host_at(sys.argv[3]), other.fileno(): host_at(sys.argv[5])}
    print("ready", flush=True)
    carry(one, other, behind, delay_s)


if __name__ == "__main__":
    main()
