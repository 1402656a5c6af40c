"""The Ed25519 key that signs checkpoints: made once, kept 0600, never shown.

Owns `audit.key` and `audit.pub` of a state directory. A new key is never made
beside an old chain, since it would turn a lost key into a silent break. Called by
`serve`, which signs, and by the verification, which needs only the public half.
"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from keyproxy.audit.segments import segments, sync_directory
from keyproxy.errors import AuditError, ConfigError

PRIVATE_FILE: Final = "audit.key"
PUBLIC_FILE: Final = "audit.pub"


@dataclass(frozen=True, slots=True)
class PublicKey:
    """The half that a stranger needs. `key_id` is for telling keys apart, not for trusting them."""

    key: Ed25519PublicKey
    key_id: str
    pem: str

    def confirms(self, signature: bytes, message: bytes) -> bool:
        try:
            self.key.verify(signature, message)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Signer:
    """The private half; its repr shows nothing of it."""

    key: Ed25519PrivateKey
    public: PublicKey

    def __repr__(self) -> str:
        return f"Signer(key_id={self.public.key_id!r})"

    def sign(self, message: bytes) -> bytes:
        return self.key.sign(message)


def load_or_create(state: Path) -> Signer:
    """The signer of a state directory; its key is made on the first start, and never beside an old chain."""
    path = state / PRIVATE_FILE
    try:
        if not path.exists():
            if segments(state):
                raise ConfigError(f"{path} is missing, but the record beside it was signed with it; restore the key")
            _create(path)
        signer = _signer(_private_key(path))
        _keep_public(state / PUBLIC_FILE, signer.public)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; restore it, or correct its owner and mode") from error
    return signer


def load_public(path: Path) -> PublicKey:
    """A public key from its PEM file."""
    try:
        key = load_pem_public_key(path.read_bytes())
    except OSError as error:
        raise AuditError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise AuditError(
            f"{path} is not a public key in PEM; give the file that `audit key` prints with --public-key"
        ) from error
    if not isinstance(key, Ed25519PublicKey):
        raise AuditError(f"{path} is not an Ed25519 key")
    return _public(key)


def _private_key(path: Path) -> Ed25519PrivateKey:
    if path.stat().st_mode & 0o077:
        raise ConfigError(f"{path} can be read by others; run: chmod 600 {path}")
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{path} is not an unencrypted private key in PEM") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(f"{path} is not an Ed25519 key")
    return key


def _create(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    pem = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    _write_durably(path, pem, 0o600)


def _keep_public(path: Path, public: PublicKey) -> None:
    if not path.exists():
        _write_durably(path, public.pem.encode(), 0o644)
    elif load_public(path).key_id != public.key_id:
        raise ConfigError(f"{path} does not belong to {PRIVATE_FILE}; restore the one that does, or remove it")


def _write_durably(path: Path, content: bytes, mode: int) -> None:
    """All or nothing: a crash must not leave half a key."""
    unfinished = path.with_name(path.name + ".new")
    unfinished.unlink(missing_ok=True)
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(path)
    sync_directory(path.parent)


def _signer(key: Ed25519PrivateKey) -> Signer:
    return Signer(key, _public(key.public_key()))


def _public(key: Ed25519PublicKey) -> PublicKey:
    key_id = hashlib.sha256(key.public_bytes_raw()).hexdigest()[:16]
    return PublicKey(key, key_id, key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode())
