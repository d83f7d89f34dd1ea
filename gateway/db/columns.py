"""What all tables share: their metadata, and columns that several of them have."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, Column, Dialect, Integer, LargeBinary, MetaData, Text, TypeDecorator, text
from sqlalchemy.dialects.postgresql import UUID as PostgresUUID
from sqlalchemy.types import TypeEngine

CLASSES = (  # of tokens, disjoint
    "input_tokens",
    "cache_read_tokens",
    "cache_write_5m_tokens",
    "cache_write_1h_tokens",
    "input_audio_tokens",
    "input_image_tokens",
    "output_tokens",
    "reasoning_tokens",
    "output_audio_tokens",
    "output_image_tokens",
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


class Uid(TypeDecorator[UUID]):
    """uuid.UUID in Python; UUID on Postgres, 16 bytes on SQLite."""

    impl = LargeBinary(16)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(PostgresUUID(as_uuid=True) if dialect.name == "postgresql" else LargeBinary(16))

    def process_bind_param(self, value: UUID | None, dialect: Dialect) -> Any:
        return value if value is None or dialect.name == "postgresql" else value.bytes

    def process_result_value(self, value: Any, dialect: Dialect) -> UUID | None:
        return value if value is None or isinstance(value, UUID) else UUID(bytes=bytes(value))


Id = BigInteger().with_variant(Integer, "sqlite")  # SQLite counts up by itself only for INTEGER


def count(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False, server_default=text("0"))


def word(name: str) -> Column[str]:
    return Column(name, Text, nullable=False, server_default="")


def usage_classes() -> list[Column[int]]:
    return [count(name) for name in CLASSES]
