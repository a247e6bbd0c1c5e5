"""Tokens as Google signs them, with keys of our own."""

import time
from typing import Any

import google.auth.crypt
import google.auth.jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

AUDIENCE = "https://jobs.example"
ACCOUNT = "push@p.iam.gserviceaccount.com"


class Issuer:
    """Signs tokens; `keys` are those that it publishes now."""

    def __init__(self) -> None:
        self._signers: dict[str, Any] = {}
        self.keys: dict[str, str] = {}
        self.fetched = 0
        self.is_away = False
        self.rotate("one", forget=False)

    def fetch(self) -> dict[str, str]:
        """Return the published keys, as `fetch_keys` does."""
        self.fetched += 1
        if self.is_away:
            raise OSError("no route")
        return dict(self.keys)

    def rotate(self, key_id: str, *, forget: bool = True) -> None:
        """Begin to sign with another key, and publish it."""
        key = rsa.generate_private_key(65537, 2048)
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        if forget:
            self.keys.clear()
        self.keys[key_id] = public.decode()
        self._signers[key_id] = google.auth.crypt.RSASigner.from_string(pem, key_id)
        self.key_id = key_id

    def token(self, *, key_id: str = "", age_s: float = 0.0, **claims: Any) -> str:
        """Return a token, good for an hour from its issue; `claims` replace what it says, None takes a claim away."""
        now = int(time.time() - age_s)
        said = {
            "iss": "https://accounts.google.com",
            "aud": AUDIENCE,
            "iat": now,
            "exp": now + 3600,
            "email": ACCOUNT,
            "email_verified": True,
            **claims,
        }
        signer = self._signers[key_id or self.key_id]
        return str(
            google.auth.jwt.encode(signer, {name: one for name, one in said.items() if one is not None}).decode()
        )
