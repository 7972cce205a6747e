"""The third application, plain Python: books what items cost."""

import time

from shared import OVER, arguments, flaky, note

from redis_acker import Inbox

acker, client, url, logs = arguments()
inbox = Inbox(acker, name="billing")


def book(row: dict[bytes, bytes]) -> None:
    flaky()
    if int(row[b"cents"]) <= 0:
        raise ValueError(f"{int(row[b'cents'])} cents cannot be booked")
    note(logs / "billing.log", [f"{row[b'order'].decode()} {row[b'item'].decode()} {row[b'anchors'][:8].hex()}"])


while not client.exists(OVER):
    entries = client.xrange("priced", count=500)
    deliveries = inbox.receive([row[b"anchors"] for _, row in entries])
    done = []
    with inbox.keeping_alive(deliveries):
        for (_, row), delivery in zip(entries, deliveries, strict=True):
            if delivery is None:
                continue  # booked before, or its order is over
            try:
                book(row)
                done.append(delivery)
            except (ValueError, ConnectionError) as error:
                inbox.fail(delivery, error)
        inbox.ack(done)
    if entries:
        # If this program ends before this line, the rows come again.
        client.xdel("priced", *(key for key, _ in entries))
    else:
        time.sleep(0.1)
