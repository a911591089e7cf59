"""The YAML reader: bounds, positions, and what unquoted words mean."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from config.problems import Origin, Problem, Reason
from config.syntax import yaml_reader
from config.syntax.yaml_reader import MAX_BYTES, InvalidYamlError, format_path, parse_path, parse_yaml


def refusal(content: bytes) -> str:
    with pytest.raises(InvalidYamlError) as caught:
        parse_yaml(content, "f.yaml")
    assert all(problem.reason is Reason.FILE_INVALID for problem in caught.value.problems)
    return "\n".join(f"{problem.origin}: {problem.message}" for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("100", 100), ("-5", -5), ("0", 0), ("1.5", 1.5), ("true", True), ("False", False), ("null", None), ("~", None),
        ("off", "off"), ("yes", "yes"), ("0755", "0755"), ("0x1f", "0x1f"), ("1_000", "1_000"), ("22:22", "22:22"),
        ("64514:100", "64514:100"), ("2024-01-01", "2024-01-01"), ("'100'", "100"), ('"true"', "true"),
        ("!!str 7", "7"),        ("10.0.0.0/24", "10.0.0.0/24"), ("2001:db8::1", "2001:db8::1"), ("9" * 50, "9" * 50),
    ],
)  # fmt: skip
def test_an_unquoted_word_means_what_it_looks_like(written: str, meant: object) -> None:
    value = parse_yaml(f"key: {written}".encode(), "f").data()["key"]
    assert value == meant
    assert type(value) is type(meant)


def test_an_empty_file_has_no_content() -> None:
    assert parse_yaml(b"", "f").data() is None
    assert parse_yaml(b"# only a comment\n", "f").data() is None


def test_a_byte_order_mark_is_ignored() -> None:
    assert parse_yaml(b"\xef\xbb\xbfa: 1", "f").data() == {"a": 1}


def test_positions_of_values_and_keys_are_found_by_path() -> None:
    document = parse_yaml(b"top:\n  - name: x\n    other:   5\n", "dir/f.yaml")
    assert document.origin(("top", 0, "other")) == Origin("dir/f.yaml", 3, 14)
    assert document.key_origin(("top", 0, "other")) == Origin("dir/f.yaml", 3, 5)
    assert document.origin(("top", 0)) == Origin("dir/f.yaml", 2, 5)


def test_the_position_of_a_missing_field_is_that_of_what_encloses_it() -> None:
    document = parse_yaml(b"top:\n  - name: x\n", "f")
    assert document.origin(("top", 0, "absent", "deeper")) == document.origin(("top", 0))
    assert document.key_origin(("top", 7)) == document.origin(("top",))


def test_the_position_of_an_alias_is_its_place_of_use() -> None:
    document = parse_yaml(b"a: &x [1]\nb: *x\n", "f")
    assert document.data() == {"a": [1], "b": [1]}
    assert document.origin(("b",)) == Origin("f", 2, 4)


def test_data_of_one_document_is_never_shared() -> None:
    document = parse_yaml(b"a: &x {k: 1}\nb: *x\n", "f")
    data = document.data()
    data["a"]["k"] = 2
    assert data["b"] == {"k": 1}
    assert document.data() == {"a": {"k": 1}, "b": {"k": 1}}


def test_every_duplicate_key_is_reported_with_its_place() -> None:
    message = refusal(b"a: 1\nb:\n  c: 1\n  c: 2\na: 3\n")
    assert "f.yaml:4:3: key 'c' is given twice (first at line 3)" in message
    assert "f.yaml:5:1: key 'a' is given twice (first at line 1)" in message


@pytest.mark.parametrize("key", ["1", "true", "null", "1.5", "[a, b]", "{a: b}"])
def test_a_key_that_is_not_text_is_refused(key: str) -> None:
    assert "f.yaml:1:3: a key must be a string" in refusal(f"? {key}\n: x\n".encode())


def test_text_that_is_not_utf8_is_refused_at_the_byte() -> None:
    assert refusal(b"a: 1\nb: \xc3\xa9\xff") == "f.yaml:2:5: not UTF-8 text"


def test_a_control_character_is_refused_at_its_place() -> None:
    assert refusal(b"a: 1\nb: x\x00y") == "f.yaml:2:5: control character U+0000 is not allowed"


def test_a_tab_for_indentation_is_named() -> None:
    assert refusal(b"a:\n\tb: 1\n") == "f.yaml:2:1: a tab cannot indent YAML: use spaces"


def test_a_second_document_is_refused() -> None:
    assert refusal(b"a: 1\n---\nb: 2\n") == "f.yaml:2:1: only one YAML document per file: merge them, or use two files"


def test_a_large_file_is_refused_unread() -> None:
    assert "larger than 1048576 bytes" in refusal(b"#" * (MAX_BYTES + 1))
    assert parse_yaml(b"#" * MAX_BYTES, "f").data() is None


@pytest.mark.parametrize("text", [b"[" * 100_000, b"a: " + b"[" * 100_000, b"- " * 3_000, b"{a: " * 3_000])
def test_hostile_nesting_is_refused(text: bytes) -> None:
    """By our limit or by that of the parser, which may have read ahead."""
    assert refusal(text).endswith("nested deeper than 32 levels")


def test_exponential_aliases_are_refused_before_they_are_expanded() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, 20)]
    assert "after aliases are expanded" in refusal("\n".join(lines).encode())


def test_aliases_that_nest_one_another_are_refused_where_they_exceed_the_depth() -> None:
    lines = ["- &a0 x", *(f"- &a{line} {'[' * 30}*a{line - 1}{']' * 30}" for line in range(1, 60))]
    assert refusal("\n".join(lines).encode()) == "f.yaml:3:37: nested deeper than 32 levels"


@pytest.mark.parametrize("nested", ["[[*a]]", "{k: {k: *a}}", "[{<<: *a}]"])
def test_an_alias_may_use_the_whole_depth_and_no_more(nested: str) -> None:
    anchor = f"a: &a {'{k: ' * 29}x{'}' * 29}\n"
    assert "b" in parse_yaml(f"{anchor}b: {nested}".encode(), "f.yaml").data()
    assert "nested deeper than 32 levels" in refusal(f"{anchor}b: [{nested}]".encode())


def test_an_alias_of_an_enclosing_value_is_refused() -> None:
    assert "alias of an enclosing value" in refusal(b"a: &x [*x]")


@pytest.mark.parametrize("content", [b"password: *hunter2", b"password: !hunter2 x", b"password: &hunter2/, x: ["])
def test_no_message_quotes_what_may_be_a_password(content: bytes) -> None:
    assert "hunter2" not in refusal(content)


def test_merge_keys_yield_to_the_mappings_own_keys() -> None:
    text = b"base: &b {x: 1, y: 2}\nuse: {<<: *b, y: 3, z: 4}\nlate: {y: 5, <<: *b}\n"
    data = parse_yaml(text, "f").data()
    assert data["use"] == {"x": 1, "y": 3, "z": 4}
    assert data["late"] == {"y": 5, "x": 1}


def test_a_merge_key_takes_mappings_only() -> None:
    assert "the merge key << needs a mapping" in refusal(b"a: {<<: 3}")


def test_pythons_own_tags_are_refused() -> None:
    assert "tags are not supported" in refusal(b"a: !!python/object/apply:os.system ['true']")


@pytest.mark.parametrize(
    ("path", "text"),
    [((), ""), (("a",), "a"), (("l3vnis", 0, "hostSession", "asn"), "l3vnis[0].hostSession.asn"), ((0, "x"), "[0].x")],
)
def test_field_paths_read_as_users_say_them(path: tuple[str | int, ...], text: str) -> None:
    assert format_path(path) == text
    assert parse_path(text) == path


@pytest.mark.parametrize(
    ("text", "place"),
    [("a.b", "1:8"), ("a.B", "1:8"), ("a", "1:1"), ("c[1]", "4:3"), ("c", "2:1"), ("c[7]", "3:1"), ("a.x.y", "1:4")],
)
def test_a_field_is_corrected_at_its_value_or_at_its_key_or_near(text: str, place: str) -> None:
    document = parse_yaml(b"a: {b: 1}\nc:\n- 1\n- 2\n", "f")
    assert str(document.place(parse_path(text))) == f"f:{place}"


_SOUP = st.text(alphabet=" \n\t-:[]{},#&*!|>'\"%@`?<~ab1.0\\\u00e9\x00", max_size=60)


def problems_of(content: bytes) -> tuple[Problem, ...]:
    try:
        parse_yaml(content, "f").data()
    except InvalidYamlError as error:
        return error.problems or (Problem("an error without a problem", Origin()),)
    return ()


@given(_SOUP)
def test_no_text_crashes_the_reader_and_every_fault_has_a_position(text: str) -> None:
    assert all(problem.origin.line > 0 and problem.origin.column > 0 for problem in problems_of(text.encode()))


@given(st.binary(max_size=60))
def test_no_bytes_crash_the_reader(content: bytes) -> None:
    assert all(problem.origin.path == "f" for problem in problems_of(content))


def test_the_pure_python_parser_gives_the_same_document(monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"a: &x {k: [1, off, '2']}\nb: *x\nc: |\n  text\n"
    fast = parse_yaml(text, "f")
    monkeypatch.setattr(yaml_reader, "_LOADER", yaml.SafeLoader)
    slow = parse_yaml(text, "f")
    assert fast.data() == slow.data()
    assert fast.origin(("a", "k", 2)) == slow.origin(("a", "k", 2))
