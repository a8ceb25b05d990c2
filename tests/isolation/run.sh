#!/usr/bin/env bash
# The races: pg_isolation_regress over specs/. Everything is as with the other driver.
exec "$(dirname "$0")/../regress/run.sh" isolation
