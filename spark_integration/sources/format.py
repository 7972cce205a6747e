"""What Spark knows as `format("redis_acker")`. Needs PySpark 4.2 or newer."""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from redis_acker.errors import BadInput
from spark_integration.sources.address import ServerAddress
from spark_integration.sources.options import SinkOptions, SourceOptions, ViewOptions
from spark_integration.sources.reader import StreamReader
from spark_integration.sources.rows import SOURCE_SCHEMA
from spark_integration.sources.views import SCHEMAS, FilteringReader, ViewReader
from spark_integration.sources.writer import BatchWriter, StreamWriter


class AckerFormat(DataSource):
    """Redis Streams to read and to write, and views of a namespace."""

    called = "redis_acker"
    address: ServerAddress | None = None
    """Of servers that options do not name."""
    pushes_filters = False
    """Whether the session lets Python sources see the filters of a query; it refuses readers that would, if not."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__({name: value for name, value in options.items() if name.lower() != "url"})
        self._address = ServerAddress.from_options(options, self.address)

    @classmethod
    def name(cls) -> str:
        return cls.called

    def schema(self) -> StructType | str:
        return SCHEMAS[ViewOptions.read(self.options).view] if "view" in self.options else SOURCE_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        reads = FilteringReader if self.pushes_filters else ViewReader
        return reads(self._address, ViewOptions.read(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(self._address, SourceOptions.read(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return StreamWriter(self._address, self._sink(overwrite), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return BatchWriter(self._address, self._sink(overwrite), schema)

    def _sink(self, overwrite: bool) -> SinkOptions:
        if overwrite:
            raise BadInput('Entries are appended to a stream, and never replaced: use mode("append").')
        return SinkOptions.read(self.options)


def bound_format(called: str, address: ServerAddress | None, *, pushes_filters: bool) -> type[AckerFormat]:
    """The format with an address. Spark pickles a class that no module has by value, and so the address with it."""
    bound = {"called": called, "address": address, "pushes_filters": pushes_filters}
    return type(AckerFormat.__name__, (AckerFormat,), bound)
