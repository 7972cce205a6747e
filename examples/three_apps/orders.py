"""The first application, a streaming query: reads orders from a stream and hands their items over to the next."""

import time

from shared import AT_ONCE, OVER, RETRIES, SPOUT, arguments, flaky, note, spark_session, writer

from spark_integration import RedisStreamSource, track_stream

acker, client, url, logs = arguments()
spark = spark_session("orders")


class Orders(RedisStreamSource):
    """Deletes an order from its stream when all three applications are done with it, or when it is given up."""

    def finish(self, message_ids):
        note(logs / "over.log", message_ids)
        super().finish(message_ids)


def split(row):
    flaky()
    for item in row.text.split():
        name, amount = item.split(":")
        yield row.id, name, int(amount)


source = Orders(url, "orders", max_per_trigger=AT_ONCE)
frame = source.frame(spark, "id string, text string")
orders = track_stream(frame, acker=acker, spout=SPOUT, message_id="id", retries=RETRIES, source=source)
items = orders.flat_map(split, "order string, item string, amount int")
job = items.sink(writer(url, "items", logs / "orders.log"), anchors="anchors")

with job.start(checkpoint=str(logs / "orders")) as query:
    while query.is_active and any(one.waiting or one.pending for one in source.status()):
        time.sleep(0.5)
    print(query.counters)
query.wait()
client.set(OVER, "yes")
