"""The pages fit together, and fit the code they describe."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import spark_integration.errors
from redis_acker import errors
from redis_acker.driver.options import DEFAULT_MAX_PENDING
from tests.docs.pages import PAGES, ROOT, name_of

ERRORS_PAGE = ROOT / "docs" / "errors.md"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_to_a_file_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8"))

    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_page_of_docs_is_named_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")

    assert [page.name for page in (ROOT / "docs").glob("*.md") if f"docs/{page.name}" not in readme] == []


def test_every_kind_of_error_is_explained() -> None:
    kinds = [
        name
        for module in (errors, spark_integration.errors)
        for name, found in vars(module).items()
        if isinstance(found, type) and issubclass(found, errors.AckerError)
    ]
    text = ERRORS_PAGE.read_text(encoding="utf-8")

    assert [kind for kind in kinds if f"`{kind}`" not in text] == []


def test_every_message_on_the_errors_page_is_one_the_code_has() -> None:
    messages = re.findall(r"^> (.+)$", ERRORS_PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    known = ["".join(parts) for parts in _texts()]
    strange = [message for message in messages if not any(_fits(message, text) for text in known)]

    assert messages
    assert strange == []


@pytest.mark.parametrize("page", ["performance.md", "writing_a_spout.md", "topologies_on_spark.md"])
def test_the_default_of_max_pending_is_the_one_the_pages_name(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    named = re.findall(r"default is \*\*(\d[\d,]*)|\b(\d[\d,]*) by default", text)

    assert {one or other for one, other in named} == {f"{DEFAULT_MAX_PENDING:,}"}


def _fits(message: str, text: str) -> bool:
    """Whether the pieces of a message between its gaps stand in a text of the code, in this order."""
    pieces = [re.escape(piece) for piece in re.split(r"\.\.\.|…", message) if piece]
    return re.search(".*".join(pieces), text, re.DOTALL) is not None


def _texts() -> Iterator[list[str]]:
    """Every text in the code, with gaps where values are filled in."""
    for path in [*(ROOT / "redis_acker").rglob("*.py"), *(ROOT / "spark_integration").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                yield [str(part.value) if isinstance(part, ast.Constant) else "\x00" for part in node.values]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield [node.value]
