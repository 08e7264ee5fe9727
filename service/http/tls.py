"""TLS: the certificate and its key, tried before anything listens.

Python's own defaults hold: TLS 1.2 and later, and the ciphers of the OpenSSL it was built with."""

import logging
import os
import ssl
import stat

from gnomon.service.settings import Settings
from gnomon.shadow import UsageError

logger = logging.getLogger("gnomon.service")


class _Encrypted(Exception):
    """A key asks for a password."""


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """The certificate and key of the settings for connections; None where the settings name no certificate.

    UsageError names the file that is missing, is no PEM, or does not fit. A certificate that clients will refuse, such
    as an expired one, is used; the log warns of it."""
    certificate, key = settings.tls_certificate, settings.tls_key
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        missing, there = ("tls_key", "tls_certificate") if key is None else ("tls_certificate", "tls_key")
        raise UsageError(f"{settings.where(there)}: expected {missing} beside {there}; TLS needs both")
    of_certificate, of_key = (
        f"{settings.where('tls_certificate')}: {certificate}",
        f"{settings.where('tls_key')}: {key}",
    )
    _check_readable(of_certificate, certificate)
    _check_readable(of_key, key)
    context = _server_context(certificate, of_certificate, key, of_key)
    trouble = _trouble(context, certificate)
    if trouble:
        logger.warning("tls_certificate %s: %s; clients will refuse it", certificate, trouble)
    if os.stat(key).st_mode & stat.S_IROTH:
        logger.warning("tls_key %s: every user of this machine may read it; chmod 600 leaves it to its owner", key)
    return context


def _check_readable(where: str, path: str) -> None:
    try:
        with open(path, "rb") as file:
            file.read(1)
    except OSError as error:
        raise UsageError(f"{where}: {error.strerror or error}; expected a PEM file") from None


def _server_context(certificate: str, of_certificate: str, key: str, of_key: str) -> ssl.SSLContext:
    def no_password() -> str:
        raise _Encrypted

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, no_password)
    except _Encrypted:
        raise UsageError(
            f"{of_key}: the key is encrypted; expected one without a password, in a file that only the "
            "service may read (openssl pkey -in FILE -out PLAIN)"
        ) from None
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise UsageError(
                f"{of_key}: not the key of the first certificate in {certificate}; expected the key it "
                "was issued for, and the service's own certificate before those of its issuers"
            ) from None
        wrong = (of_key, "a private key") if _holds_certificate(certificate) else (of_certificate, "a certificate")
        raise UsageError(f"{wrong[0]}: expected {wrong[1]} in PEM form, found something else") from None
    return context


def _holds_certificate(path: str) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except (ssl.SSLError, OSError):
        return False
    return True


def _trouble(server: ssl.SSLContext, certificate: str) -> str:
    """The reason why a client that trusts this certificate would refuse it, from a handshake in memory; empty if it
    would not."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(certificate)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True)]
    for _ in range(4):  # two turns each are enough
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as error:
                return error.verify_message
    return ""
