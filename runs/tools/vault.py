"""Credentials at rest: encrypted with the newest key, readable with every key that is still configured."""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence

from cryptography.fernet import Fernet, InvalidToken, MultiFernet


class VaultLocked(Exception):
    """No configured key opens this ciphertext: the key was rotated away before the row was re-encrypted."""


class Vault:
    """MultiFernet over keys derived from settings. Values never leave it but through `open`."""

    def __init__(self, keys: Sequence[str]) -> None:
        derived = [base64.urlsafe_b64encode(hashlib.sha256(b"credentials\0" + key.encode()).digest()) for key in keys]
        self._fernet = MultiFernet([Fernet(key) for key in derived])

    def seal(self, values: Mapping[str, str]) -> bytes:
        return self._fernet.encrypt(json.dumps(dict(values)).encode())

    def open(self, ciphertext: bytes) -> dict[str, str]:
        try:
            return dict(json.loads(self._fernet.decrypt(bytes(ciphertext))))
        except InvalidToken as error:
            raise VaultLocked from error

    def rotate(self, ciphertext: bytes) -> bytes:
        """The same values under the newest key."""
        try:
            return self._fernet.rotate(bytes(ciphertext))
        except InvalidToken as error:
            raise VaultLocked from error
