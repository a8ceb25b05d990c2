#!/bin/sh
# Run inside a Debian with postgresql and gosu: makes it what docker/Dockerfile expects of the official
# image, in the official image's words.
set -eu
sample=/usr/share/postgresql/$PG_MAJOR/postgresql.conf.sample
mv "$sample" /usr/share/postgresql/postgresql.conf.sample
ln -s ../postgresql.conf.sample "$sample"
sed -ri "s!^#?(listen_addresses)\s*=\s*\S+.*!\1 = '*'!" /usr/share/postgresql/postgresql.conf.sample
install --directory --owner postgres --group postgres --mode 3777 /var/run/postgresql
install --directory --owner postgres --group postgres --mode 1777 "$PGDATA"
mkdir -p /docker-entrypoint-initdb.d
rm -rf /var/lib/apt/lists/*
