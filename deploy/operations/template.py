"""Render a template of the project and put it on a host."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from jinja2 import (
    Environment,
    FileSystemLoader,
    StrictUndefined,
    TemplateError,
    TemplateSyntaxError,
)

from deploy.operations.arguments import Plain, ProjectFile
from deploy.operations.common import holds_secret, option, project_file
from deploy.operations.files import WRITING, WantedFile, preview_files, write_files
from runbooks.engine.model.fact import Argument
from runbooks.engine.model.host import Context
from runbooks.engine.model.operation import (
    Acting,
    Operation,
    OperationFailed,
    Preview,
    Previewing,
)
from runbooks.engine.model.values import HostPath, MapOf

TEMPLATES = "deploy/templates"


class Template(Operation):
    """`template: {src: sglang.service.j2, dest: /etc/…, vars: {mode: extract}}`.

    Jinja2 with StrictUndefined, else as `copy`. `files` says why pyinfra's `files.template`
    is not used; besides, its undefined variables are named without file and line.
    """

    name = "template"
    about = "Render a Jinja2 template (an undefined variable is an error) and write it on the host."
    arguments: ClassVar[Mapping[str, Argument]] = {
        "src": Argument(
            ProjectFile(),
            "The template, below deploy/templates or below the project.",
            required=True,
        ),
        "dest": Argument(HostPath(), "The file on the host.", required=True),
        "vars": Argument(MapOf(Plain()), "What the template is given, beside `host` and `roots`."),
        **WRITING,
    }

    def preview(self, args: Mapping[str, Any], context: Context) -> Previewing:
        """A unified diff of what is there and what the template gives."""
        wanted = self._wanted(args, context)
        if holds_secret(wanted.content.decode()):
            yield from preview_files(self._label(args), [wanted])
            return Preview(summary=f"{wanted.path}: holds a secret, compared when it acts")
        return (yield from preview_files(self._label(args), [wanted]))

    def act(self, args: Mapping[str, Any], context: Context) -> Acting:
        """Render and write it by a rename, when it differs."""
        written = yield from write_files(self._label(args), [self._wanted(args, context)])
        return f"{args['dest']} written" if written else "nothing to do"

    def _label(self, args: Mapping[str, Any]) -> str:
        return f"template {args['dest']}"

    def _wanted(self, args: Mapping[str, Any], context: Context) -> WantedFile:
        content = render(args["src"], args.get("vars") or {}, context)
        return WantedFile(
            context.host.resolve(args["dest"]),
            content.encode(),
            args["src"],
            mode=option(self, args, "mode"),
            owner=args.get("owner"),
            group=args.get("group"),
            secret=option(self, args, "secret") or holds_secret(content),
            backup=option(self, args, "backup"),
            parents=option(self, args, "parents"),
        )


def render(source: str, variables: Mapping[str, Any], context: Context) -> str:
    """The template's text; OperationFailed names the file and the line of a fault."""
    path = project_file(context, source, TEMPLATES)
    environment = Environment(
        loader=FileSystemLoader([path.parent, context.project / TEMPLATES, context.project]),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # plain configuration files, not HTML
    )
    host = context.host
    given = {
        "host": host,
        "roots": {name: str(root.path) for name, root in host.roots.items()},
        **variables,
    }
    try:
        return environment.get_template(path.name).render(given)
    except TemplateSyntaxError as error:
        raise OperationFailed(f"{error.filename or path}:{error.lineno}: {error.message}") from None
    except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
        raise OperationFailed(f"{_place(error, path)}: {error}") from None
    except OSError as error:
        raise OperationFailed(f"{path}: {error.strerror}") from None


def _place(error: BaseException, path: Path) -> str:
    """The innermost line of a template in the traceback, which Jinja2 maps to its source."""
    frames = traceback.extract_tb(error.__traceback__)
    places = [
        f"{frame.filename}:{frame.lineno}"
        for frame in frames
        if not frame.filename.endswith(".py") and Path(frame.filename).is_file()
    ]
    return places[-1] if places else str(path)
