"""Whether the service answers, for the HEALTHCHECK of its image: exit status 0, or 1 and a line that says why not.

HEALTH_URL is what to ask. A certificate is not checked: it names the service, not this address."""

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
        urllib.request.ProxyHandler({}),  # this very machine is asked, whatever proxy it uses for others
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
