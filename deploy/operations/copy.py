"""Put files of the project on a host."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from deploy.operations.arguments import ProjectFile
from deploy.operations.common import option, project_file
from deploy.operations.files import WRITING, WantedFile, preview_files, write_files
from runbooks.engine.model.fact import Argument
from runbooks.engine.model.host import Context
from runbooks.engine.model.operation import Acting, Operation, OperationFailed, Previewing
from runbooks.engine.model.values import HostPath, show_size

# What is held in memory and sent over one connection; larger things are a job's.
FILES = 1000
BYTES = 256 * 2**20


class Copy(Operation):
    """`copy: {src: deploy/x.conf, dest: /etc/x.conf, mode: "0644"}`.

    Of a folder every regular file is written (at most 1,000 files of 256 MiB); nothing is
    removed, and links are refused. `files` says why pyinfra's `files.put` is not used.
    """

    name = "copy"
    about = "Write a file, or the files of a folder, of the project on the host."
    symbol = "~"
    arguments: ClassVar[Mapping[str, Argument]] = {
        "src": Argument(
            ProjectFile(),
            "A file or folder of the project; of a folder each file, and nothing is removed.",
            required=True,
        ),
        "dest": Argument(HostPath(), "The file (or folder) on the host.", required=True),
        **WRITING,
    }

    def preview(self, args: Mapping[str, Any], context: Context) -> Previewing:
        """A unified diff of each text that differs; binaries and large files by their sizes."""
        return (yield from preview_files(self._label(args), self._wanted(args, context)))

    def act(self, args: Mapping[str, Any], context: Context) -> Acting:
        """Write what differs, each file by a rename."""
        wanted = self._wanted(args, context)
        written = yield from write_files(self._label(args), wanted)
        return f"{written} of {len(wanted)} files written" if written else "nothing to do"

    def _label(self, args: Mapping[str, Any]) -> str:
        return f"copy {args['dest']}"

    def _wanted(self, args: Mapping[str, Any], context: Context) -> list[WantedFile]:
        source = project_file(context, args["src"])
        dest = context.host.resolve(args["dest"])
        if not source.is_dir():
            return [self._file(args, source, dest, args["src"])]
        paths = sorted(path for path in source.rglob("*") if not path.is_dir())
        if links := [path for path in paths if path.is_symlink() or not path.is_file()]:
            raise OperationFailed(
                f"{links[0]} is no regular file; a folder's files are copied only"
            )
        if len(paths) > FILES:
            raise OperationFailed(f"{args['src']} holds {len(paths):,} files; at most {FILES:,}")
        return [
            self._file(args, path, f"{dest}/{inside}", f"{args['src']}/{inside}")
            for path in paths
            for inside in [path.relative_to(source).as_posix()]
        ]

    def _file(self, args: Mapping[str, Any], source: Path, dest: str, shown: str) -> WantedFile:
        try:
            size = source.stat().st_size
            content = source.read_bytes() if size <= BYTES else b""
        except OSError as error:
            raise OperationFailed(f"{shown} cannot be read: {error.strerror}") from None
        if size > BYTES:
            raise OperationFailed(
                f"{shown} has {show_size(size)}; at most {show_size(BYTES)} are copied"
            )
        return WantedFile(
            dest,
            content,
            shown,
            mode=option(self, args, "mode"),
            owner=args.get("owner"),
            group=args.get("group"),
            secret=option(self, args, "secret"),
            backup=option(self, args, "backup"),
            parents=option(self, args, "parents"),
        )
