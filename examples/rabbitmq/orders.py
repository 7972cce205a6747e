"""Books the orders in a RabbitMQ queue, and acks each order when all of its items are booked.

python orders.py fill AMQP_URL COUNT    declares the queue "orders" and fills it
python orders.py run AMQP_URL           runs until the queue is empty
"""

import json
import sys
from collections.abc import Callable

import pika

from redis_acker import Acker, BasicBolt, FailedTuple, LocalRunner, TopologyBuilder, Tuple
from redis_acker.spouts.rabbitmq import RabbitMqSpout

QUEUE = "orders"


class Split(BasicBolt):
    fields = ("order", "item")

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        if not tup["items"]:
            raise FailedTuple(f"order {tup['order']} is empty", fatal=True)  # a retry would not help
        for item in tup["items"]:
            emit(tup["order"], item)


class Book(BasicBolt):
    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        pass  # book the item here


def fill(url: str, count: int) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.queue_declare(QUEUE, durable=True)
    for number in range(count):
        order = {"order": number, "items": ["pen", "ink"] if number % 100 else []}
        # By this id redis-acker recognises an order after a restart.
        channel.basic_publish("", QUEUE, json.dumps(order), pika.BasicProperties(message_id=f"order-{number}"))
    connection.close()
    print(f"{count} orders are in the queue {QUEUE!r}.")


def run(url: str) -> None:
    builder = TopologyBuilder("orders")
    builder.spout("queue", RabbitMqSpout(url, QUEUE, decode=json.loads, fields=("order", "items")))
    builder.bolt("split", Split()).shuffle("queue")
    builder.bolt("book", Book(), parallelism=2).shuffle("split")
    with Acker("embedded") as acker, LocalRunner(builder.build(), acker) as runner:
        runner.wait_until_idle()
        did = runner.counters()
    print(
        f"{did['queue'].acked} orders are complete, {did['book'].acked} items booked, {did['queue'].dead} orders dead."
    )


if __name__ == "__main__":
    if sys.argv[1] == "fill":
        fill(sys.argv[2], int(sys.argv[3]))
    else:
        run(sys.argv[2])
