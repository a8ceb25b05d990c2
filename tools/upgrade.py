#!/usr/bin/env python3
"""Makes sql/taskq--FROM--TO.sql, the upgrade script, mechanically: `make upgrade-script`.

How upgrades are made:

1. At a release, `make freeze` keeps the install script of that version as sql/frozen/taskq--VERSION.sql, and its checksum.
   It is never edited again. Then the version in Cargo.toml is raised.
2. Who changes sql/ after that edits the files as if there were no earlier version. What cannot be derived
   from them goes, in the same commit, into sql/upgrades/FROM--TO.sql: ALTER TABLE for a table that is
   there already, new rows, DROP VIEW where a view loses or reorders columns, DROP of whatever uses a
   function that has to be dropped. It runs first, and once, on the tables as the old version left them.
3. This script compares the frozen install script with the one that a build has just made. It writes the
   hand-written part, then, in the order of the new install script: new tables, sequences, indexes and
   triggers; every function, procedure and view that is new, or after a DROP if its arguments or its result changed,
   and as CREATE OR REPLACE those that differ; comments; what pg_dump is to take along. It ends by
   giving what it has made to the extension's owner, closing it to PUBLIC, and granting again (taskq._grant_again).
4. It lists what is left, such as a changed CREATE TABLE: that must be in the hand-written part. Whether it
   is, and is right, says the server test `update`: it updates a database of the old version and compares
   its catalogs with those of a new one, naming each difference.

An upgrade script can be made again at will until its version is released; then it is frozen as well.
"""

import re
import sys

from pglast import ast, enums, parse_sql, split
from pglast.stream import RawStream


CLOSING = """do $$
declare
  v_object text;
begin
  foreach v_object in array array[
{objects}
  ] loop
    execute pg_catalog.format('revoke all on %s from %s', v_object, taskq._others());
  end loop;
end
$$;"""


def without_comments(text):
    """The statement alone: what stands before it goes, and pgrx's marks inside do no harm."""
    while True:
        text = text.strip()
        if text.startswith("--"):
            text = text.partition("\n")[2]
        elif text.startswith("/*"):
            text = text.partition("*/")[2]
        else:
            return text


def name(parts):
    return ".".join(part.sval for part in parts)


def relation(node):
    return f"{node.schemaname}.{node.relname}" if node.schemaname else node.relname


class Statement:
    """One statement of an install script: what it is about, and what of it cannot be replaced."""

    def __init__(self, text):
        self.text = without_comments(text)
        node = parse_sql(self.text)[0].stmt
        self.kind, self.name, self.shape = type(node).__name__, None, None
        if isinstance(node, ast.CreateFunctionStmt):
            self.kind = "procedure" if node.is_procedure else "function"
            self.name = name(node.funcname)
            parameters = node.parameters or ()
            mode = enums.FunctionParameterMode
            results = (mode.FUNC_PARAM_TABLE,) if node.is_procedure else (mode.FUNC_PARAM_TABLE, mode.FUNC_PARAM_OUT)
            inputs = [p for p in parameters if p.mode not in results]
            self.arguments = ", ".join(RawStream()(p.argType) for p in inputs)
            self.shape = (
                [(p.name, RawStream()(p.argType), p.mode) for p in parameters],
                RawStream()(node.returnType) if node.returnType else None,
            )
            self.defaults = sum(p.defexpr is not None for p in parameters)
        elif isinstance(node, ast.ViewStmt):
            self.kind, self.name = "view", relation(node.view)
        elif isinstance(node, ast.CreateStmt):
            self.kind, self.name = "table", relation(node.relation)
        elif isinstance(node, ast.CreateSeqStmt):
            self.kind, self.name = "sequence", relation(node.sequence)
        elif isinstance(node, ast.IndexStmt):
            self.kind, self.name = "index", node.idxname
        elif isinstance(node, ast.CreateTrigStmt):
            self.kind, self.name = "trigger", f"{node.trigname} on {relation(node.relation)}"
        elif isinstance(node, ast.CommentStmt):
            self.kind = "comment"
            target = node.object
            if isinstance(target, ast.ObjectWithArgs):
                self.name = name(target.objname)
            elif isinstance(target, tuple):  # a table or view, or a column of one, which goes with it
                self.name = name(target[:2])
            else:
                self.name = RawStream()(target)
        elif isinstance(node, ast.GrantStmt):
            self.kind = "grant"
        elif self.text.startswith("select taskq._close_types(") or self.kind == "DoStmt" and "taskq._others()" in self.text:
            self.kind = "closing"
        elif self.kind == "DoStmt" and "raise exception" in self.text:
            self.kind = "check"
        elif "pg_extension_config_dump" in self.text:
            self.kind = "dump"

    @property
    def key(self):
        return (self.kind, self.name)


def statements(path):
    with open(path) as file:
        return [Statement(text) for text in split(file.read())]


def upgrade(old, new, by_hand):
    """The lines of the upgrade script, and what the hand-written part must have."""
    before = {statement.key: statement for statement in old if statement.name}
    after = {statement.key: statement for statement in new if statement.name}
    old_texts = {statement.text for statement in old}
    drops, changes, closed, left, made = [], [], [], [], set()
    rights = ["select taskq._give_to_owner();"]  # also what the hand-written part has made

    for statement in reversed(old):
        if statement.kind not in ("function", "procedure", "view", "table", "sequence", "index", "trigger"):
            continue
        successor = after.get(statement.key)
        drop = f"drop {statement.kind} {statement.name}"
        if statement.kind in ("function", "procedure"):
            if successor and successor.shape == statement.shape and successor.defaults >= statement.defaults:
                continue
            made.add(statement.name)
            drop += f"({statement.arguments})"
        elif successor:
            continue
        if re.search(rf"\b{re.escape(f'drop {statement.kind}')}\s+(if exists\s+)?{re.escape(statement.name)}\b", by_hand):
            continue
        if statement.kind in ("function", "procedure", "view"):
            drops.append(drop + ";")
        else:
            left.append(f"{statement.kind} {statement.name} is not there any more")

    for statement in new:
        known = statement.text in old_texts
        if statement.kind == "grant":
            if not known:
                rights.append(statement.text + ";")
        elif statement.kind in ("function", "procedure", "view"):
            dropped = re.search(rf"\bdrop {statement.kind}\s+(if exists\s+)?{re.escape(statement.name)}\b", by_hand)
            if known and not dropped and statement.name not in made:
                continue
            if dropped or statement.key not in before:
                made.add(statement.name)
            # What is new must not take over something that is there already.
            create = "create " if statement.name in made or dropped else "create or replace "
            changes.append(re.sub(r"^create (or replace )?", create, statement.text) + ";")
            if statement.name in made:
                closed.append(statement)
        elif statement.kind == "comment":
            if not known or statement.name in made:
                changes.append(statement.text + ";")
        elif known or statement.kind == "closing":  # taskq._grant_again does that, and what is closed below
            continue
        elif statement.kind == "check":  # of CREATE EXTENSION; one that holds for upgrades, too, stands in the hand-written part
            continue
        elif statement.kind in ("table", "sequence", "index", "trigger") and statement.key not in before:
            if statement.name not in by_hand:
                changes.append(statement.text + ";")
            if statement.kind in ("table", "sequence"):
                closed.append(statement)
        elif statement.kind == "dump":
            changes.append(statement.text + ";")
        elif statement.text not in by_hand:
            left.append(f"{statement.kind} {statement.name or ''}: {' '.join(statement.text.split())[:100]}")
    # Only these: "on all tables" would also mean the partitions of this database.
    objects = []
    for statement in closed:
        kind = "table" if statement.kind == "view" else statement.kind
        arguments = f"({statement.arguments})" if statement.kind in ("function", "procedure") else ""
        objects.append(f"    '{kind} {statement.name}{arguments}'")
    if objects:
        rights.append(CLOSING.format(objects=",\n".join(objects)))
    return drops, changes, rights, left


def main():
    old_path, new_path, hand_path, version_from, version_to = sys.argv[1:]
    try:
        with open(hand_path) as file:
            by_hand = file.read()
    except FileNotFoundError:
        by_hand = ""
    drops, changes, rights, left = upgrade(statements(old_path), statements(new_path), by_hand)
    print(f"-- The upgrade from {version_from} to {version_to}. Made by tools/upgrade.py; what is written by hand is in")
    print(f"-- sql/upgrades/{version_from}--{version_to}.sql, and stands first.\n")
    for part in ([by_hand.strip()] if by_hand.strip() else []), drops, changes, rights:
        for statement in part:
            print(statement + "\n")
    print("-- Roles keep the parts they were granted, and get what was added to them.")
    print("select taskq._grant_again();\n")
    print("-- The keeper of the old version has left when its library went.")
    print("select taskq._start_keeper();")
    for line in left:
        print(f"by hand: {line}", file=sys.stderr)


if __name__ == "__main__":
    main()
