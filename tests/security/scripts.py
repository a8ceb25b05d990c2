"""pgspot over SQL scripts: what an install or upgrade script must not do, because superusers run it.

Four things that pgspot 0.9.4 cannot read are shown to it in other words. Bodies in the standard's form
(`return ...`) are parsed while the script runs, with the script's search_path: it sees a query there. And its
parser knows no tables, so variables of a table's type are records. It reads what RETURN NEXT gives as a query.
And it does not know that a function's name stands before its own arguments, where values are assigned to them.
"""

import re
import sys

from pglast import ast
from pglast.stream import RawStream
from pgspot import cli, visitors

visit_function = visitors.SQLVisitor.visit_CreateFunctionStmt
TABLE_TYPE = re.compile(r"^(\s+v_\w+\s+)taskq\.\w+;", re.MULTILINE)

ASSIGNED = re.compile(r"^\s*[\w.]+ :=|\binto [\w.]+(, [\w.]+)*", re.MULTILINE)


def visit(self, ancestors, node):
    if isinstance(node.sql_body, ast.ReturnStmt):
        state = visitors.State(self.state.counter)
        state.searchpath_secure = self.state.searchpath_secure
        visitors.visit_sql(state, f"select {RawStream()(node.sql_body.returnval)}")
        return None
    for option in node.options:
        if option.defname == "as":
            body = TABLE_TYPE.sub(r"\1record;", option.arg[0].sval)
            own = re.escape(node.funcname[-1].sval)
            body = ASSIGNED.sub(lambda found: re.sub(rf"\b{own}\.", "", found[0]), body)
            option.arg[0].sval = body.replace("return next row(", "return query select row(")
    return visit_function(self, ancestors, node)


visitors.SQLVisitor.visit_CreateFunctionStmt = visit
sys.exit(cli.run())
