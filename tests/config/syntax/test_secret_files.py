"""Passwords in files of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.desired import Secret
from config.syntax.secret_files import SecretUnusableError, open_to_others, read_secret


def put(tmp_path: Path, content: bytes, mode: int = 0o600) -> Path:
    path = tmp_path / "secrets" / "fabric"
    path.parent.mkdir()
    path.write_bytes(content)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("content", [b"s3cret", b"s3cret\n", b"s3cret\r\n"])
def test_one_line_end_does_not_belong_to_the_password(tmp_path: Path, content: bytes) -> None:
    put(tmp_path, content)
    assert read_secret(tmp_path, "fabric") == (Secret("s3cret"), "")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_file_that_others_can_read_is_used_with_a_warning(tmp_path: Path, mode: int) -> None:
    put(tmp_path, b"s3cret", mode)
    secret, warning = read_secret(tmp_path, "fabric")
    assert secret == Secret("s3cret")
    assert f"has mode {mode:04o}; make it 0600" in warning


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "1 to 128 printable ASCII"), (b"s3cret\n\n", "1 to 128 printable ASCII"), (b"s3 cret", "no spaces"),
        (b"s3cret" * 100, "too large"), (b"s3cret\xff", "printable ASCII characters only"),
        (b"s3cret" * 30, "1 to 128"),
    ],
)  # fmt: skip
def test_what_is_no_password_is_refused_and_never_quoted(tmp_path: Path, content: bytes, message: str) -> None:
    put(tmp_path, content)
    with pytest.raises(SecretUnusableError, match=message) as caught:
        read_secret(tmp_path, "fabric")
    assert "s3" not in str(caught.value).replace(str(tmp_path), "")


def test_a_missing_password_names_its_file(tmp_path: Path) -> None:
    with pytest.raises(SecretUnusableError, match="secrets/fabric does not exist"):
        read_secret(tmp_path, "fabric")


def test_a_directory_is_no_password(tmp_path: Path) -> None:
    (tmp_path / "secrets" / "fabric").mkdir(parents=True)
    with pytest.raises(SecretUnusableError, match="not a regular file"):
        read_secret(tmp_path, "fabric")


def test_the_owners_own_bits_are_no_cause_for_a_warning(tmp_path: Path) -> None:
    assert open_to_others(tmp_path, 0o700) == ""
