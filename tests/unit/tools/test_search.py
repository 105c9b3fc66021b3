"""Search finds tools by what they are called and do, in bounded work."""

import pytest

from runs.domain.effects import EffectClass
from runs.tools import search
from runs.tools.base import ToolSpec
from runs.tools.bounds import MAX_EXPANSIONS, MAX_QUERY_WORDS
from runs.tools.search import SearchIndex
from runs.tools.words import split_words, stem


def spec(address: str, description: str = "", *arguments: str, path: str = "") -> ToolSpec:
    source, name = address.split(".")
    schema = {"type": "object", "properties": {argument: {} for argument in arguments}}
    return ToolSpec(source, name, description, schema, None, EffectClass.READ, {"path": path})


TOOLS = [
    spec("shop.create_charge", "Charges a customer's card.", "amount", "customer_id", path="/v1/charges"),
    spec("shop.list_charges", "Lists charges, newest first.", "limit", path="/v1/charges"),
    spec("shop.refund_charge", "Gives money back.", "charge_id", "reason"),
    spec("shop.list_customers", "Everyone who ever bought something."),
    spec("github.create_issue", "Opens an issue in a repository.", "title", "labels"),
    spec("github.list_repositories", "Repositories of a user; also mentions charges once."),
    spec("mail.send_message", "Sends an e-mail.", "recipients", "subject"),
]
INDEX = SearchIndex(TOOLS)


def found(query: str, **options: object) -> list[str]:
    return [hit.address for hit in INDEX.search(query, **options)[1]]  # type: ignore[arg-type]


def test_words_are_split_at_case_digits_and_underscores() -> None:
    assert split_words("createHTTPCharge_v2 getID") == ["create", "http", "charge", "v", "2", "get", "id"]


@pytest.mark.parametrize("forms", [["charge", "charges", "charged", "charging"], ["list", "lists", "listing"]])
def test_forms_of_a_word_meet(forms: list[str]) -> None:
    assert len({stem(form) for form in forms}) == 1


def test_the_exact_address_comes_first() -> None:
    assert found("shop.refund_charge")[0] == "shop.refund_charge"
    assert found("send_message")[0] == "mail.send_message"


def test_name_words_weigh_more_than_descriptions() -> None:
    hits = found("charges")
    assert hits[-1] == "github.list_repositories"
    assert set(hits[:3]) == {"shop.create_charge", "shop.list_charges", "shop.refund_charge"}


def test_a_tool_that_answers_every_word_comes_before_one_that_answers_some() -> None:
    assert found("creating an issue")[0] == "github.create_issue"
    assert found("list repositories")[0] == "github.list_repositories"


def test_argument_names_and_descriptions_are_searched() -> None:
    assert found("recipient")[0] == "mail.send_message"
    assert found("money back") == ["shop.refund_charge"]


def test_prefixes_and_small_typing_errors_are_tolerated() -> None:
    assert found("repos")[0] == "github.list_repositories"
    assert found("custmer")[0] in ("shop.create_charge", "shop.list_customers")
    assert "shop.create_charge" in found("chagre")


def test_an_empty_query_lists_all_by_address_in_pages() -> None:
    total, page = INDEX.search("", limit=2, offset=2)
    assert total == len(TOOLS)
    assert [hit.address for hit in page] == sorted(tool.address for tool in TOOLS)[2:4]


def test_a_source_narrows_the_search() -> None:
    assert set(found("create", source="github")) == {"github.create_issue"}


@pytest.mark.acceptance_id("T10")
def test_what_is_not_visible_is_neither_found_nor_counted_nor_suggested() -> None:
    def visible(tool: ToolSpec) -> bool:
        return tool.name != "create_charge"

    total, hits = INDEX.search("charge", visible=visible)
    assert total == len(hits)
    assert "shop.create_charge" not in [hit.address for hit in hits]
    assert "shop.create_charge" not in INDEX.near("shop.create_charg", visible=visible)


@pytest.mark.acceptance_id("T1")
@pytest.mark.parametrize("wrong", ["shop.create_charg", "shop.createCharge", "shops.create_charge", "create_charge"])
def test_near_addresses_are_suggested(wrong: str) -> None:
    assert INDEX.near(wrong)[0] == "shop.create_charge"


def test_nothing_is_suggested_for_what_resembles_nothing() -> None:
    assert INDEX.near("zzzz.qqqq") == []


def test_nothing_is_found_for_nonsense() -> None:
    assert INDEX.search("zzzzqqqq") == (0, [])


def test_an_index_without_tools_answers() -> None:
    assert SearchIndex([]).search("anything") == (0, [])
    assert SearchIndex([]).near("a.b") == []


def test_the_work_of_a_search_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    index = SearchIndex(spec(f"s.charge{chr(97 + n % 26)}{n}_x", "") for n in range(500))
    walks = 0
    original = SearchIndex._bm25

    def counted(self: SearchIndex, term: str) -> object:
        nonlocal walks
        walks += 1
        return original(self, term)

    monkeypatch.setattr(search.SearchIndex, "_bm25", counted)
    index.search(" ".join(f"char{chr(97 + n % 26)} ch cha" for n in range(200)))
    assert 0 < walks <= MAX_QUERY_WORDS * (MAX_EXPANSIONS + 1)
