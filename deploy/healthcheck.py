"""The HEALTHCHECK of the service's image: exit status 0 if the service answers, else 1 and a line with the reason.

HEALTH_URL is the URL to check. A certificate is not verified: it names the service, not this address."""

import os
import ssl
import sys
import urllib.request

SECONDS = 4  # below the time limit of the check itself, so that the reason is printed


def main() -> int:
    url = os.environ.get("HEALTH_URL", "http://127.0.0.1:8000/healthz")
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}),  # without the proxy of the environment, since the service is on this machine
        urllib.request.HTTPSHandler(context=context),
    )
    try:
        opener.open(url, timeout=SECONDS).close()  # an error, too, where the status is not 2xx
    except OSError as error:
        print(f"{url}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
