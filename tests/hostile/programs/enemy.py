"""An enemy: a program of its own on raw Zenoh, which knows the wire and nothing of the package.

A command is a line of JSON, its answer one too. Bytes are written as {"$hex": ...}.
"""

import json
import secrets
import sys
import time

import msgspec
import zenoh


def revived(value):
    if isinstance(value, dict):
        if "$hex" in value:
            return bytes.fromhex(value["$hex"])
        return {key: revived(one) for key, one in value.items()}
    return [revived(one) for one in value] if isinstance(value, list) else value


def main() -> None:
    bus, endpoint = sys.argv[1:]
    settings = {
        "mode": "peer",
        "namespace": bus,
        "connect": {"endpoints": [endpoint]},
        "listen": {"endpoints": []},
        "scouting": {"multicast": {"enabled": False}},
    }
    name = f"evil-1-{secrets.token_hex(6)}"
    heard: list[tuple[str, bytes]] = []
    kept = []

    def take(sample) -> None:
        heard.append((str(sample.key_expr), sample.payload.to_bytes()))

    with zenoh.open(zenoh.Config.from_json5(json.dumps(settings))) as session:

        def put(key: str, frame) -> None:
            payload = msgspec.msgpack.encode(revived(frame))
            session.put(key, payload, congestion_control=zenoh.CongestionControl.BLOCK)

        def answered(command) -> object:
            match command:
                case ["token"]:
                    kept.append(session.liveliness().declare_token(f"l/{name}"))
                case ["hear", key]:
                    kept.append(session.declare_subscriber(key, take))
                case ["put", key, frame]:
                    put(key, frame)
                case ["replay"]:  # all that was heard, on the keys where it was, and on others
                    again, heard[:] = heard[:], []
                    for key, data in again:
                        for where in (key, "all"):
                            session.put(where, data)
                case ["flood", key, frame, seconds]:
                    until_s = time.monotonic() + seconds
                    while time.monotonic() < until_s:
                        for _ in range(100):
                            put(key, frame)
                case ["holds", text]:  # whether anything that was heard has this in it
                    return sum(text.encode() in data for _, data in list(heard))
            return len(heard)

        print(json.dumps(name), flush=True)
        for line in sys.stdin:
            print(json.dumps(answered(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
