"""The second application, a streaming query: prices items and hands them over to the third."""

import time

from shared import AT_ONCE, OVER, arguments, flaky, spark_session, writer

from spark_integration import register, track_stream

PRICES = {"tea": 250, "milk": 120, "sugar": 90}

acker, client, url, logs = arguments()
spark = spark_session("pricing")
register(spark, url=url)


def price(row):
    flaky()
    return row.order, row.item, int(row.amount) * PRICES[row.item]


# Entries are deleted when Spark has committed their micro-batch: everything in it is acked or failed by then.
options = {"stream": "items", "release": "committed", "max_per_trigger": AT_ONCE}
schema = "order string, item string, amount string, anchors binary"
frame = spark.readStream.format("redis_acker").options(**options).schema(schema).load()
items = track_stream(frame, acker=acker, name="pricing", anchors="anchors")
priced = items.map(price, "order string, item string, cents int")
job = priced.sink(writer(url, "priced", logs / "pricing.log"), anchors="anchors")

with job.start(checkpoint=str(logs / "pricing")) as query:
    while query.is_active and not client.exists(OVER):
        time.sleep(0.2)
    print(query.counters)
query.wait()
