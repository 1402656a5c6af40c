"""The signing key is made once, kept close, and never made anew beside an old record."""

import stat
from pathlib import Path

import pytest
from chains import Clock
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from keyproxy.audit.checkpoint import checkpoint_data
from keyproxy.audit.keys import Signer, _signer, load_or_create, load_public
from keyproxy.audit.writer import Writer
from keyproxy.core.chain import GENESIS
from keyproxy.errors import AuditError, ConfigError


def test_a_key_is_made_for_the_owner_alone_and_found_again(tmp_path: Path) -> None:
    first = load_or_create(tmp_path / "new" / "state")
    key_file = tmp_path / "new" / "state" / "audit.key"
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    assert key_file.read_text().startswith("-----BEGIN PRIVATE KEY-----")
    assert load_or_create(tmp_path / "new" / "state").public.key_id == first.public.key_id
    assert sorted(path.name for path in key_file.parent.iterdir()) == ["audit.key", "audit.pub"]


def test_the_public_key_lies_beside_it_and_is_made_again_when_lost(tmp_path: Path) -> None:
    signer = load_or_create(tmp_path)
    assert load_public(tmp_path / "audit.pub").key_id == signer.public.key_id
    (tmp_path / "audit.pub").unlink()
    load_or_create(tmp_path)
    assert (tmp_path / "audit.pub").read_text() == signer.public.pem


def test_no_new_key_is_made_beside_an_old_chain(tmp_path: Path) -> None:
    Writer.open(tmp_path, load_or_create(tmp_path), Clock()()).close(Clock()())
    (tmp_path / "audit.key").unlink()
    with pytest.raises(ConfigError, match="restore the key"):
        load_or_create(tmp_path)
    assert not (tmp_path / "audit.key").exists()


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    load_or_create(tmp_path)
    (tmp_path / "audit.key").chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        load_or_create(tmp_path)


def test_a_public_key_of_someone_else_is_not_overwritten(tmp_path: Path) -> None:
    load_or_create(tmp_path)
    other = load_or_create(tmp_path / "other").public.pem
    (tmp_path / "audit.pub").write_text(other)
    with pytest.raises(ConfigError, match="does not belong"):
        load_or_create(tmp_path)
    assert (tmp_path / "audit.pub").read_text() == other


def _pem(key: Ed25519PrivateKey | X25519PrivateKey, password: bytes | None = None) -> bytes:
    encryption = BestAvailableEncryption(password) if password else NoEncryption()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)


@pytest.mark.parametrize(
    "content",
    [b"", b"not a key", _pem(X25519PrivateKey.generate()), _pem(Ed25519PrivateKey.generate(), b"password")],
)
def test_a_file_that_is_no_usable_key_is_refused_without_showing_it(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "audit.key").write_bytes(content)
    (tmp_path / "audit.key").chmod(0o600)
    with pytest.raises(ConfigError, match=r"audit\.key is not an") as refused:
        load_or_create(tmp_path)
    assert not content or content.decode() not in str(refused.value)


def test_a_file_that_is_no_public_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    with pytest.raises(AuditError, match="cannot be read"):
        load_public(path)
    path.write_text("nonsense")
    with pytest.raises(AuditError, match="not a public key"):
        load_public(path)
    other = X25519PrivateKey.generate().public_key()
    path.write_bytes(other.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    with pytest.raises(AuditError, match="Ed25519"):
        load_public(path)


def _fixed_signer() -> Signer:
    return _signer(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))


def test_a_signer_shows_its_id_and_nothing_more() -> None:
    assert repr(_fixed_signer()) == "Signer(key_id='56475aa75463474c')"


def test_the_bytes_of_a_checkpoint_are_pinned() -> None:
    """Ed25519 is deterministic (RFC 8032), so that the same key and claim always give these."""
    assert checkpoint_data(_fixed_signer(), 0, GENESIS, 0, clean=False) == {
        "clean": False,
        "count": 0,
        "head": GENESIS,
        "key_id": "56475aa75463474c",
        "signature": "4qdDZFzxyXbgAIEgYFNtIHNNTsbk8U03ZODYS/zvEzPZ4B7Yel6hatkz8+1jmMnMUe1Fjosa77IkpzHDSxBAAA==",
        "trials": 0,
    }
