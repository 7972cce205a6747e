# redis-acker with Spark: the command line, the rotator, the Spark master and workers, and drivers.

FROM python:3.12-slim-bookworm AS build
RUN python -m venv /opt/acker
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY lua lua
COPY redis_acker redis_acker
COPY spark_integration spark_integration
RUN /opt/acker/bin/pip install --no-cache-dir --disable-pip-version-check '.[spark]'

FROM python:3.12-slim-bookworm
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --create-home acker \
    && install -d -o acker -g acker /var/lib/spark
COPY --from=build /opt/acker /opt/acker
ENV PATH=/opt/acker/bin:$PATH \
    PYSPARK_PYTHON=/opt/acker/bin/python \
    PYTHONUNBUFFERED=1 \
    SPARK_LOCAL_DIRS=/var/lib/spark/local \
    SPARK_WORKER_DIR=/var/lib/spark/work
# By number: an orchestrator that refuses root cannot look up a name.
USER 10001
WORKDIR /home/acker
CMD ["redis-acker", "--help"]
