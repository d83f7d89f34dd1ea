# The gateway's image. Of EXTRAS local brings the engine and otel traces; TORCH_INDEX_URL says from where torch comes (CPU builds by
# default: the PyPI build for Linux brings 3 GB of CUDA libraries). EXTRAS=otel makes a small image for hosted and remote backends only.
FROM python:3.13.7-slim-bookworm AS build
ARG EXTRAS=local,otel
ARG TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu
WORKDIR /src
RUN python -m venv /opt/tollway
COPY pyproject.toml requirements.lock README.md CHANGELOG.md LICENSE ./
COPY gateway gateway
COPY providers providers
COPY local_engine local_engine
COPY migrations migrations
COPY dashboards dashboards
# torch alone from its own index, so that everything else still comes from the usual one
RUN case ",$EXTRAS," in *,local,*) \
        /opt/tollway/bin/pip install --no-cache-dir --no-deps --index-url "$TORCH_INDEX_URL" -c requirements.lock torch ;; \
    esac && /opt/tollway/bin/pip install --no-cache-dir -c requirements.lock ".${EXTRAS:+[$EXTRAS]}"

FROM python:3.13.7-slim-bookworm
RUN useradd --uid 10001 --create-home tollway && install -d -o tollway -g tollway -m 0700 /var/lib/tollway
COPY --from=build /opt/tollway /opt/tollway
# `tollway` on the PATH, also for `docker compose exec`: the database's address holds a password, so it may come as a secret file
RUN printf '%s\n' '#!/bin/sh' \
    'if [ -r /run/secrets/database_url ]; then' \
    '  TOLLWAY_STORAGE__DATABASE_URL="$(cat /run/secrets/database_url)" && export TOLLWAY_STORAGE__DATABASE_URL' \
    'fi' \
    'exec /opt/tollway/bin/tollway "$@"' > /usr/local/bin/tollway && chmod 0755 /usr/local/bin/tollway
USER tollway
WORKDIR /var/lib/tollway
ENV TOLLWAY_SERVER__HOST=0.0.0.0 \
    TOLLWAY_STORAGE__STATE_DIR=/var/lib/tollway
# the ledger's journal lies here: a local volume, never a network file system or tmpfs
VOLUME /var/lib/tollway
EXPOSE 4000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["/opt/tollway/bin/python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:4000/health/live', timeout=3)"]
CMD ["tollway", "serve"]
